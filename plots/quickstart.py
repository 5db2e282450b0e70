"""Draws the quickstart sweep: time and peak memory per sample against the sequence length.

Usage: python plots/quickstart.py [RESULT_DIR ...] [--out DIR]
"""

import sys

from attnplots import cli, scaling

if __name__ == "__main__":
    sys.exit(cli.main(__file__, "Draws the quickstart sweep from its records.", scaling.draw))
