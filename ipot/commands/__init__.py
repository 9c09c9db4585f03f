"""One file for each command: a dataclass of its flags, and `main`."""
