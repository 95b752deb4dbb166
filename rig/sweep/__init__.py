"""A grid of measurements: frozen, recorded cell by cell, resumed after any interruption, and put in a table.

In: a grid. Out: a directory of runs and a table. Imported by commands.
"""
