"""The campaign: attacks on `ipot` that go on for minutes or for hours, and what they found.

`make campaign` runs it. Nothing here is part of the package that people install.
"""
