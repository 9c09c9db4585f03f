"""One file for each kind of attack; a module lists its attacks in `ATTACKS`."""
