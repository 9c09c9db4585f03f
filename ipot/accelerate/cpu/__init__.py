"""Kernels in C++ for a CPU, compiled where they run. Each has its plain version in `ipot.nn`.

Without a compiler, or where it fails, torch computes the same; `ipot.accelerate.cpu.build` says
why.
"""
