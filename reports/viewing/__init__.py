"""Looking into the traces of a run: a component of the report's page, and `rig view`, which serves a whole trace.

In: a `Result`, or a run directory. Out: pictures that zoom to single readings. No figure comes from here.
"""
