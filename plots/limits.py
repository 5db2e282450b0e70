"""Prints the rates of the CPU kernels as shares of the machine's multiply-add rate, as Markdown.

Usage: python plots/limits.py [RESULT_DIR ...]
"""

import sys

from attnplots.published import limits

if __name__ == "__main__":
    sys.exit(limits.main(__file__))
