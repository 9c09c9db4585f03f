"""How good a prediction is, and at what cost."""
