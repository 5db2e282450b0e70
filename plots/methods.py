"""Draws time and memory of all methods: a sheet for each pass, with and without a causal mask.

Usage: python plots/methods.py [RESULT_DIR ...] [--quantity time|ratio] [--width column|page]
       [--methods NAME,...] [--out DIR]
"""

import sys

from attnplots import cli
from attnplots.figures import families

if __name__ == "__main__":
    about = "Draws time and memory of all methods from their records, on several sheets."
    sys.exit(cli.main(__file__, about, families.draw, draw_ratio=families.draw_ratio))
