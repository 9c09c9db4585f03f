"""One file for each model: a `Config`, a class, and `MODEL`."""
