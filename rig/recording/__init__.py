"""The run directory: the only definition of its format, its writer and its reader.

In: events, rows and readings. Out: a ``Run``. Imported by nearly every package.
"""
