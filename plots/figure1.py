"""Draws figure 1: time and peak memory per sample against the sequence length.

Usage: python plots/figure1.py [RESULT_DIR ...] [--out DIR]
"""

import sys

from attnplots import cli, scaling

if __name__ == "__main__":
    sys.exit(cli.main(__file__, "Draws figure 1 from its records.", scaling.draw))
