"""Draws the CPU kernels and the methods they are compared with under the machine's roof.

Usage: python plots/cpu-kernels.py [RESULT_DIR ...] [--out DIR]
"""

import sys

from attnplots import ceilings, cli, roofline

if __name__ == "__main__":
    sys.exit(cli.main(__file__, "Draws kernels under the roof.", roofline.draw, also=ceilings.load))
