"""The run directory: its one description, how it is written and how it is read.

In: events, rows and readings. Out: a ``Run``. Imported by the engine, importers and the analysis.
"""
