"""Layers that several models share; none of them knows about problems or batches."""
