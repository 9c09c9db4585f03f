"""The paper, item by item: what was printed, how ours is made, and what came of it.

`items` has every cell of the paper's tables and figures as data, `jobs` turns a cell into the
settings of a run, `records` reads the ledger of what was run, `plan` says what is left and what it
costs, `running` runs it, `tables`, `figures` and `settings` write it down.
"""
