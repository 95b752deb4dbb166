"""Make one result from the runs of a session, and judge it by the rules over several runs.

In: runs with their results. Out: a ``Result``. Imported by sessions, submissions, sweeps and comparisons.
"""
