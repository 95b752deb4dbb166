"""Compute every figure as a pure function of the recording.

In: a ``Run``. Out: a ``Result``. Imported by commands, sessions, sweeps, comparisons, submissions, conformance, doctor,
reports, drivers and scenarios.
"""
