"""Draws figure 1: time and peak memory per sequence against the sequence length, and the lengths from
which on methods are faster than sdpa.

Usage: python plots/figure1.py [RESULT_DIR ...] [--quantity time|ratio] [--width column|page]
       [--methods NAME,...] [--out DIR]
"""

import sys

from attnplots import cli
from attnplots.figures import scaling

if __name__ == "__main__":
    about = "Draws figure 1 from its records."
    sys.exit(cli.main(__file__, about, scaling.draw_crossovers, draw_ratio=scaling.draw_ratio))
