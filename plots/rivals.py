"""Draws how many times as long other packages take as the methods of this project.

Usage: python plots/rivals.py [RESULT_DIR ...] [--out DIR]
"""

import sys

from attnplots import cli
from attnplots.figures import rivals

if __name__ == "__main__":
    about = "Draws the times of other packages as multiples of those of this project."
    sys.exit(cli.main(__file__, about, rivals.draw))
