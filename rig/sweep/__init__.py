"""A grid of measurements: frozen, recorded cell by cell, resumed after any interruption, tabled.

In: a grid. Out: a directory of runs and a table. Imported by commands.
"""
