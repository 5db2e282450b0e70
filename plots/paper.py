"""`attnbench` starts this script, which is the same as `python plots/run.py paper`."""

import sys
from pathlib import Path

from attnplots import entry

if __name__ == "__main__":
    root = Path(__file__).resolve().parent.parent
    sys.exit(entry.run(root, "paper", sys.argv[1:], "paper.py"))
