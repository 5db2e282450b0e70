"""Draws decoding: time per token and memory against the position in the sequence.

Usage: python plots/decode.py [RESULT_DIR ...] [--out DIR]
"""

import sys

from attnplots import cli, decode

if __name__ == "__main__":
    sys.exit(cli.main(__file__, "Draws decoding from its records.", decode.draw))
