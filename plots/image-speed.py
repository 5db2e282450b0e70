"""Draws how fast images are generated on the CPU and on the GPU, beside published values.

Usage: python plots/image-speed.py [RESULT_DIR ...] [--width column|page] [--out DIR]
"""

import sys

from attnplots import cli
from attnplots.figures import image_speed

if __name__ == "__main__":
    about = "Draws seconds per image and images per second, beside published values."
    reading = {"load": image_speed.load, "file_name": image_speed.FILE_NAME}
    sys.exit(cli.main(__file__, about, image_speed.draw, **reading))
