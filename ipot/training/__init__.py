"""One training loop for every problem and model; it knows neither."""
