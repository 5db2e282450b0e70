"""Draws figures, prints tables and writes pages of records; `entry` finds by a name what does."""
