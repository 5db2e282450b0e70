"""Figures of experiments that are no sweeps: generated images, their speed, and whole models."""
