"""Draws the roofline of the CUDA kernels on a GPU.

Usage: python plots/gpu-grid.py [RESULT_DIR ...] [--out DIR]
"""

import sys

from attnplots import ceilings, cli, roofline

if __name__ == "__main__":
    about = "Draws the roofline of the CUDA kernels from their records."
    sys.exit(cli.main(__file__, about, roofline.draw, load_more=ceilings.load_gpu))
