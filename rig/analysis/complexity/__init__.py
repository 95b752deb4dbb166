"""Compute the complexity metrics of NeuroBench's algorithm track for the network that a device declares.

In: ``NetworkInfo`` and the recorded activity. Out: figures and checks. Imported by the analysis, sweeps and commands.
"""
