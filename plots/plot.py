"""Draws any folder of records or of trainings; `attnbench plot` starts this script.

Usage: python plots/plot.py FOLDER [--x COLUMN] [--y COLUMN] [--series COLUMN] [--facet COLUMN]
       [--methods NAME,...] [--filter COLUMN=VALUE] [--out FILE_OR_DIR] [--width column|page]
"""

import sys

from attnplots.start import start

if __name__ == "__main__":
    sys.exit(start(__file__, "plot"))
