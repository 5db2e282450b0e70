"""Draws time and memory of all methods in small multiples, and their approximation errors.

Usage: python plots/methods.py [RESULT_DIR ...] [--quantity time|ratio] [--out DIR]
"""

import sys

from attnplots import cli, errors, families

if __name__ == "__main__":
    about = "Draws time, memory and approximation error of all methods from their records."
    ratio = families.draw_ratio
    sys.exit(cli.main(__file__, about, families.draw, draw_ratio=ratio, error=errors.draw))
