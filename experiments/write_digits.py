"""Writes scikit-learn's bundled digits as IDX files, as images to train on without a download.

These are 1797 scans of handwritten digits with 8 × 8 pixels of 17 grey levels (E. Alpaydin and C. Kaynak, "Optical
Recognition of Handwritten Digits", UCI Machine Learning Repository, 1998, licence CC BY 4.0). They are not MNIST, though the
files have the names of MNIST's. The first 1437 images are for training, the last 360 for validation.

Usage: python experiments/write_digits.py [FOLDER]     (default: experiments/settings/digits)
"""

import gzip
import struct
import sys
from pathlib import Path

import numpy as np
from sklearn.datasets import load_digits

TRAINING = 1437
DEFAULT = Path(__file__).parent / "settings/digits"


def idx_bytes(values: np.ndarray) -> bytes:
    """The array of uint8 as an IDX file: 00 00, type 08, the number of dimensions, the sizes, the elements."""
    header = struct.pack(f">BBBB{values.ndim}I", 0, 0, 8, values.ndim, *values.shape)
    return header + values.tobytes()


def write(folder: Path) -> None:
    digits = load_digits()
    # The grey levels 0 … 16 become bytes 0 … 255.
    images = np.round(digits.images * (255 / 16)).astype(np.uint8)
    labels = digits.target.astype(np.uint8)
    folder.mkdir(parents=True, exist_ok=True)
    parts = {"train": slice(TRAINING), "t10k": slice(TRAINING, None)}
    for part, which in parts.items():
        for name, values in (("images-idx3", images), ("labels-idx1", labels)):
            # Without a time in its header, so that the same digits give the same file.
            compressed = gzip.compress(idx_bytes(values[which]), mtime=0)
            (folder / f"{part}-{name}-ubyte.gz").write_bytes(compressed)


if __name__ == "__main__":
    write(Path(sys.argv[1]) if len(sys.argv) > 1 else DEFAULT)
