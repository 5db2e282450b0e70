#!/usr/bin/env python3
"""Writes the data of the paper's experiments into data/, from packages of Debian:

    fashion-mnist        70,000 real images of clothes with 28 × 28 pixels, as the files of MNIST (31 MB to download)
    synthesised-speech   sentences of experiments/sources/sentences.txt, spoken by espeak-ng (5 MB, and minutes to compute)
    debian-handbook      the text of The Debian Administrator's Handbook, split by chapter (35 MB)

A package that is installed is used; another one is downloaded with apt-get and unpacked, without root and without installing
anything. The contents are checked by their digests, and what is complete already is left as it is.

Usage: python experiments/prepare_data.py [NAME …] [--out FOLDER]     (default: all, into data/)
"""

import argparse
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "experiments"))

from sources import fashion_mnist, handbook, synthesised_speech  # noqa: E402
from sources.debian import SourceError  # noqa: E402

# What writes the data of each name into an empty folder, and whether a folder holds them.
SOURCES = {"fashion-mnist": fashion_mnist, "synthesised-speech": synthesised_speech, "debian-handbook": handbook}


def prepare(name: str, out: Path) -> None:
    """Writes the data of this name into out/name. They are moved there when they are complete."""
    source, folder = SOURCES[name], out / name
    if source.is_complete(folder):
        print(f"{folder}: complete already", flush=True)
        return
    if folder.exists():
        raise SourceError(f"{folder}: it holds other or incomplete data; move it away, and run this again")
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{name}-", dir=out) as temporary:
        written = Path(temporary) / "written"
        written.mkdir()
        source.write(written, Path(temporary))
        written.rename(folder)
    print(f"{folder}: written", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(SOURCES))
    parser.add_argument("--out", type=Path, default=ROOT / "data", metavar="FOLDER", help="default: data/")
    options = parser.parse_args()
    for name in options.names:
        if name not in SOURCES:
            parser.error(f"unknown data '{name}', expected {', '.join(SOURCES)}")
    try:
        for name in options.names or SOURCES:
            prepare(name, options.out)
    except (SourceError, OSError) as error:
        print(f"prepare_data: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
