"""Measurements of speed, always beside the plain version of the same mathematics."""
