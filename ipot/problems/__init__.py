"""One file for each problem: equation, distribution, solver call, `Spec`, and `PROBLEM`."""
