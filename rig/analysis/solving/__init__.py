"""What solvers reach: costs computed again, gaps to targets, time and energy to a gap.

In: solutions and progress. Out: quantities and checks. Imported by the analysis.
"""
