"""Layers that several models share; none of them knows a problem or a batch."""
