"""Prints the paper's numbers beside ours, and which of its claims hold here, as Markdown or text.

Usage: python plots/verdicts.py [RESULTS] [--claims FILE] [--format FORMAT] [--width COLUMNS]; `attnbench verdicts` starts it.
"""

import sys

from attnplots.start import start

if __name__ == "__main__":
    sys.exit(start(__file__, "verdicts"))
