"""Describe a deployed network, and count what a simulator makes it do.

In: layers, weights and the activity of a simulator. Out: a ``NetworkInfo`` for ``DeviceInfo.network`` and integer
counters for ``Reply.activity``. Imported by drivers, ``rig.types``, recording, engine, conformance, analysis and
commands; it imports nothing of the project.
"""
