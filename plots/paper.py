"""Draws a figure of the paper, or prints one of its tables with our numbers; `attnbench paper` starts
this script.

Usage: python plots/paper.py figure1|figure2|figure3|figure4|figure5|table1|...|table5|memory|break-even
       [--results DIR] [--out DIR] [--width column|page] [--format markdown|latex]
"""

import sys

from attnplots.start import start

if __name__ == "__main__":
    sys.exit(start(__file__, "paper"))
