"""Draws any folder of records or of trainings; `attnbench plot` starts this script.

Usage: python plots/plot.py FOLDER [--x COLUMN] [--y COLUMN] [--series COLUMN] [--facet COLUMN]
       [--filter COLUMN=VALUE] [--out FILE_OR_DIR]
"""

import sys

# What `attnbench` takes as the sign that Python lacks a package.
MISSING_PACKAGE = 3

if __name__ == "__main__":
    try:
        from attnplots import plot
    except ModuleNotFoundError as error:
        print(f"plot.py: {error}", file=sys.stderr)
        sys.exit(MISSING_PACKAGE)
    sys.exit(plot.main(__file__))
