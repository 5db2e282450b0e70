"""The code that the plotting scripts share.

A script `plots/NAME.py` hands `cli.main` its own path and a function that turns
records into a figure; folders, files and errors are then handled here alike.
"""
