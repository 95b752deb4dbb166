"""Compute sums over windows of traces of any length, in bounded memory.

In: a trace file and windows. Out: energies. Imported by commands.
"""
