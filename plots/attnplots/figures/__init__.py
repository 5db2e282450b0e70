"""Describes figures as data: their panels, curves, marks and notes. Nothing here draws."""
