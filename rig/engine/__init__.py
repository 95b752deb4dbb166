"""One run is played and recorded: steps go to the device, meters and clocks are read. Nothing is computed.

In: steps and an opened bench. Out: a run directory, through ``recording``. Imported by sessions and importers.
"""
