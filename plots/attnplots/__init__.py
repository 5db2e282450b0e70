"""The code that the plotting scripts share.

A script `plots/NAME.py` passes its own path and a function that turns records into a figure to
`cli.main`, which finds the result folders, writes the files and reports errors for all scripts.
"""
