"""Draws a figure, prints a table or writes a page, by its name.

Usage: python plots/run.py NAME ...; `python plots/run.py --help` lists the names.
"""

import sys
from pathlib import Path

from attnplots import entry

if __name__ == "__main__":
    sys.exit(entry.main(Path(__file__).resolve().parent.parent, sys.argv[1:]))
