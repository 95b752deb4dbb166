"""Draw the traces of a run: a picture in the report's page, and `rig view`, which serves a whole trace.

The pictures zoom to single readings. No figure is computed from them.
"""
