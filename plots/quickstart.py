"""Draws the quickstart sweep: time and peak memory per sequence against the sequence length.

Usage: python plots/quickstart.py [RESULT_DIR ...] [--quantity time|ratio] [--out DIR]
"""

import sys

from attnplots import cli
from attnplots.figures import scaling

if __name__ == "__main__":
    about = "Draws the quickstart sweep from its records."
    sys.exit(cli.main(__file__, about, scaling.draw, draw_ratio=scaling.draw_ratio))
