"""Compares results with published numbers and claims, and writes the pages that quote them."""
