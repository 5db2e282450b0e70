"""Draws the time of a decoded token on the CPU and on the GPU, for each method.

Usage: python plots/latency.py [RESULT_DIR ...] [--width column|page] [--methods NAME,...] [--out DIR]
"""

import sys

from attnplots import cli
from attnplots.figures import latency

if __name__ == "__main__":
    about = "Draws the time of a decoded token on the CPU and on the GPU from its records."
    sys.exit(cli.main(__file__, about, latency.draw))
