"""Checks that the folders of results/ hold together: one revision a machine, the current schema,
equal numbers of shared cases, and figures and pages made from the records.

Usage: python plots/check_results.py [RESULTS]
"""

import sys

from attnplots.published import shipped

if __name__ == "__main__":
    sys.exit(shipped.main(__file__))
