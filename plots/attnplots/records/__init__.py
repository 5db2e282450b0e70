"""Reads records, trainings and environments, and makes rows of them; it knows nothing of figures."""
