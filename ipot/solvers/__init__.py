"""Numerical solvers: arrays in, arrays out, batched torch on the CPU or a GPU.

A solver knows nothing of learning, data sets or files. Each module holds one equation, its
discretisation and the reference; `random_fields` draws the inputs, sample by sample, so that a
draw does not depend on the batch, the device or the resolution it is used at.
"""
