"""Measure a grid of cells: store the grid, record it cell by cell, resume it after any interruption, make a table.

In: a grid. Out: a directory of runs and a table. Imported by commands and reports.
"""
