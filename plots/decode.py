"""Draws time per token and memory of decoding against the position in the sequence.

Usage: python plots/decode.py [RESULT_DIR ...] [--out DIR]
"""

import sys

from attnplots import cli, decode

if __name__ == "__main__":
    sys.exit(cli.main(__file__, "Draws the decoding figure from its records.", decode.draw))
