"""Grids of runs and networks in both tracks: their tables, pages and pictures."""
