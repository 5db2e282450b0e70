"""Draws all methods: time and memory in small multiples, and the error of approximations.

Usage: python plots/methods.py [RESULT_DIR ...] [--out DIR]
"""

import sys

from attnplots import cli, errors, families

if __name__ == "__main__":
    about = "Draws time, memory and approximation error of all methods from their records."
    sys.exit(cli.main(__file__, about, families.draw, error=errors.draw))
