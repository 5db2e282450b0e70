"""Draws the roofline of the CPU kernels and of the methods that they are compared with.

Usage: python plots/cpu-kernels.py [RESULT_DIR ...] [--out DIR]
"""

import sys

from attnplots import ceilings, cli, roofline

if __name__ == "__main__":
    about = "Draws the roofline of the CPU kernels from their records."
    sys.exit(cli.main(__file__, about, roofline.draw, load_more=ceilings.load))
