"""Draws the power curves of the gate from a calibration.

Usage: python plots/gate.py [RESULT_DIR ...] [--out DIR]
"""

import sys

from attnplots import cli
from attnplots.figures import gate

if __name__ == "__main__":
    about = "Draws how often the gate reaches each verdict, by the true slowdown of a case."
    sys.exit(cli.main(__file__, about, gate.draw, load=gate.load, file_name=gate.FILE_NAME))
