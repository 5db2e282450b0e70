"""Prints the paper's numbers beside ours, and which of its claims hold here, as Markdown.

Usage: python plots/verdicts.py [RESULTS] [--claims FILE]; `attnbench verdicts` starts it.
"""

import sys

# What `attnbench` takes as the sign that Python lacks a package.
MISSING_PACKAGE = 3

if __name__ == "__main__":
    try:
        from attnplots import verdicts
    except ModuleNotFoundError as error:
        print(f"verdicts.py: {error}", file=sys.stderr)
        sys.exit(MISSING_PACKAGE)
    sys.exit(verdicts.main(__file__))
