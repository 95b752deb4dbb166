"""Record a session from a request: set up the bench, plan the runs and record them.

In: a ``Request``. Out: a session directory. Imported by commands, sweeps, doctor, comparisons, submissions and reports.
"""
