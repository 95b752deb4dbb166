"""The run directory: the single description of its format, its writer and its reader.

In: events, rows and readings. Out: a ``Run``. Imported by nearly every package.
"""
