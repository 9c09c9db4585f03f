"""One training loop for every problem and model, which knows nothing of either."""
