"""`attnbench` starts this script, which is the same as `python plots/run.py plot`."""

import sys
from pathlib import Path

from attnplots import entry

if __name__ == "__main__":
    root = Path(__file__).resolve().parent.parent
    sys.exit(entry.run(root, "plot", sys.argv[1:], "plot.py"))
