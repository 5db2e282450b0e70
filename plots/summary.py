"""Prints which method is the fastest at two lengths, and from which length on methods are faster
than sdpa, as Markdown.

Usage: python plots/summary.py RESULT_DIR [--methods NAME,...]
"""

import sys

from attnplots.published import summary

if __name__ == "__main__":
    sys.exit(summary.main(__file__))
