"""Draws how far methods are from exact attention, against their time and against how peaked the
attention is.

Usage: python plots/quality.py [RESULT_DIR ...] [--width column|page] [--methods NAME,...] [--out DIR]
"""

import sys

from attnplots import cli
from attnplots.figures import quality

if __name__ == "__main__":
    about = "Draws the errors of the rows of methods from their records."
    sys.exit(cli.main(__file__, about, quality.draw))
