"""Compute what solvers reach: costs of their solutions, gaps to targets, and time and energy to a gap.

In: solutions and progress. Out: quantities and checks. Imported by the analysis, reports, drivers and scenarios.
"""
