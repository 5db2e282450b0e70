"""Draws the rates of the CUDA kernels against the sequence length, below the rate of the GPU.

Usage: python plots/gpu-grid.py [RESULT_DIR ...] [--width column|page] [--methods NAME,...] [--out DIR]
"""

import sys

from attnplots import cli
from attnplots.figures import ceilings, rates

if __name__ == "__main__":
    about = "Draws the rates of the CUDA kernels from their records."
    sys.exit(cli.main(__file__, about, rates.draw, load_more=ceilings.load_gpu))
