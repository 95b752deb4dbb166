"""Describe a deployed network, and count what a simulator makes it do.

In: layers, weights and the activity of a simulator. Out: a ``NetworkInfo`` for ``DeviceInfo.network`` and integer
counters for ``Reply.activity``. Drivers and the analysis import it; it imports nothing of the project.
"""
