"""Draws a figure of the paper, or prints one of its tables with our numbers; `attnbench paper` starts
this script.

Usage: python plots/paper.py figure1|figure2|figure3|figure4|figure5|table1|...|table5|memory|break-even
       [--results DIR] [--out DIR] [--width column|page] [--format markdown|latex]
"""

import sys

# What `attnbench` takes as the sign that Python lacks a package.
MISSING_PACKAGE = 3

if __name__ == "__main__":
    try:
        from attnplots import paper
    except ModuleNotFoundError as error:
        print(f"paper.py: {error}", file=sys.stderr)
        sys.exit(MISSING_PACKAGE)
    sys.exit(paper.main(__file__))
