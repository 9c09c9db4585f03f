"""Kernels in C++ for a CPU, compiled where they run. Each has its plain version in `ipot.nn`.

Without a compiler, or where theirs fails, all goes the plain ways; `ipot.accelerate.cpu.build` says why.
"""
