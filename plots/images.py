"""Draws samples and completions of images that `attnbench` has generated.

Usage: python plots/images.py FOLDER [--out FILE_OR_DIR]
"""

import sys

from attnplots.figures import images

if __name__ == "__main__":
    sys.exit(images.main(__file__))
