"""What a deployed network is, and how a simulator counts what it does.

In: layers, weights and the activity of a simulator. Out: a ``NetworkInfo`` for ``DeviceInfo.network`` and integer
counters for ``Reply.activity``. Drivers and the analysis import it; it imports nothing of the project.
"""
