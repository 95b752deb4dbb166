"""Draw the traces of a run: a picture in the report's page, and `rig view`, which serves a whole trace.

In: a `Result`, or a run directory. Out: pictures that zoom to single readings. No figure is computed from them.
"""
