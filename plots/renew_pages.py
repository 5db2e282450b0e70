"""Draws all figures again from the records in results/, says beside them what they were drawn from, and
writes what the records say into README.md and docs/claims.md.

Usage: python plots/renew_pages.py [--pages-only]; `make figures` runs it.
"""

import sys

from attnplots.published import renewal

if __name__ == "__main__":
    sys.exit(renewal.main(__file__))
