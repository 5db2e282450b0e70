"""Draws figure 1: time and peak memory per sample against the sequence length.

Usage: python plots/figure1.py [RESULT_DIR ...] [--quantity time|ratio] [--out DIR]
"""

import sys

from attnplots import cli, scaling

if __name__ == "__main__":
    about = "Draws figure 1 from its records."
    sys.exit(cli.main(__file__, about, scaling.draw, draw_ratio=scaling.draw_ratio))
