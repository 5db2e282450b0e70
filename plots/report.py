"""Writes one page of HTML about folders of results; `attnbench report` starts this script.

Usage: python plots/report.py DIR... [-o FILE] [--title TEXT]
"""

import sys

# What `attnbench` takes as the sign that Python lacks a package.
MISSING_PACKAGE = 3

if __name__ == "__main__":
    try:
        from attnplots.report import page
    except ModuleNotFoundError as error:
        print(f"report.py: {error}", file=sys.stderr)
        sys.exit(MISSING_PACKAGE)
    sys.exit(page.main(__file__))
