"""Compute the complexity metrics of NeuroBench's algorithm track for the network that a device declares.

In: ``NetworkInfo`` and the recorded activity. Out: figures and checks. ``rig.analysis.evaluate`` and ``rig complexity``
import it.
"""
