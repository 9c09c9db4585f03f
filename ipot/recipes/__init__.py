"""Experiments: their settings by problem, system and preset, and their runs."""
