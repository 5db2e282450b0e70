"""Fashion-MNIST: images of clothes of Zalando's shop, 60,000 to train with and 10,000 to validate with, in the format of MNIST
(H. Xiao, K. Rasul, R. Vollgraf, "Fashion-MNIST", 1708.07747; MIT licence)."""

import shutil
from pathlib import Path

from sources import debian

PACKAGE, FOLDER = "dataset-fashion-mnist", "usr/share/datasets/fashion-mnist"
# SHA-256 digests of the files as they are published.
DIGESTS = {
    "train-images-idx3-ubyte.gz": "b0564c3eedabfbf835052cff8503ea422014ce006caf5b757f851416ee8300c7",
    "train-labels-idx1-ubyte.gz": "0ae29f65d86684f32d1b9c85147786c547b9c6aebcaf235f0400a0cce308b056",
    "t10k-images-idx3-ubyte.gz": "cc1d090a38ace84dfa1aa66e3ada7c336ef481a96936906477e6dd344da56eaa",
    "t10k-labels-idx1-ubyte.gz": "8d3605d196f4be44669e46906da9733c8131fef761fdbfec72c424d5222f1a05",
}


def is_complete(folder: Path) -> bool:
    """Whether the folder has all files with their digests."""
    return all((folder / n).is_file() and debian.digest([folder / n]) == d for n, d in DIGESTS.items())


def write(folder: Path, scratch: Path) -> None:
    """Copies the files of the package. Raises SourceError."""
    source = debian.folder_of(PACKAGE, FOLDER, scratch)
    for name, digest in DIGESTS.items():
        if not (source / name).is_file():
            raise debian.SourceError(f"{source / name}: no such file, expected it in the package {PACKAGE}")
        shutil.copyfile(source / name, folder / name)
        debian.check_digest(folder / name, digest)
