"""Play and record one run: issue steps to the device, read meters and clocks, and compute nothing.

In: steps and an opened bench. Out: a run directory, through ``recording``. Imported by sessions and importers.
"""
