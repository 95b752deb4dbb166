"""From a request to the runs of a session: set up the bench, plan the runs and record them.

In: a ``Request``. Out: a session directory. Imported by commands and sweeps.
"""
