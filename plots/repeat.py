"""Draws two runs of one sweep over each other: their ratios, and by how much the runs differ.

Usage: python plots/repeat.py [FIRST_RUN SECOND_RUN] [--out DIR]
"""

import sys

from attnplots import cli
from attnplots.figures import repeat

if __name__ == "__main__":
    about = "Draws the ratios of two runs of one sweep, and by how much the runs differ."
    sys.exit(cli.main_of_two_runs(__file__, about, repeat.draw))
