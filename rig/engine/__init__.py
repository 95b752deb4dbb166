"""Play and record one run: issue steps to the device, and read meters and clocks. Nothing is computed.

In: steps and an opened bench. Out: a run directory, through ``recording``. Imported by sessions and importers; parts of
it, such as the clock, also by other packages.
"""
