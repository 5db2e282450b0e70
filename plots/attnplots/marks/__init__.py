"""Draws described figures with Matplotlib."""
