"""What `gpu.py` does on a GPU node, in the standard library of Python 3.9."""
