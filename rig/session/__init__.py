"""From a request to the runs of a session: the bench is set up, the runs are planned and recorded.

In: a ``Request``. Out: a session directory. Imported by commands and sweeps.
"""
