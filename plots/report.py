"""Writes one page of HTML about folders of results; `attnbench report` starts this script.

Usage: python plots/report.py DIR... [-o FILE] [--title TEXT]
"""

import sys

from attnplots.start import start

if __name__ == "__main__":
    sys.exit(start(__file__, "report.page"))
