"""Whole experiments as functions that return settings."""
