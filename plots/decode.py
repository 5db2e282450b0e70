"""Draws time per token and memory of decoding against the position in the sequence.

Usage: python plots/decode.py [RESULT_DIR ...] [--quantity time|ratio] [--out DIR]
"""

import sys

from attnplots import cli
from attnplots.figures import decode

if __name__ == "__main__":
    about = "Draws the decoding figure from its records."
    sys.exit(cli.main(__file__, about, decode.draw, draw_ratio=decode.draw_ratio))
