"""Compare runs, sessions and submissions, and judge the differences by limits.

In: verified results. Out: differences with intervals, and verdicts on limits. Imported by commands and reports.
"""
