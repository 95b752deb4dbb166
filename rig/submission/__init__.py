"""Make one folder of sessions that a reviewer reads and a program checks.

In: verified sessions, and what only the submitter knows. Out: a submission folder, its archive and its signature.
Imported by commands and ``reports.submission``.
"""
