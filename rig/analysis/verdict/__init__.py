"""Judge one run by its rules, and find where its recording contradicts itself.

In: a ``Run`` and its figures. Out: checks, and the verdict. Imported by the analysis, sessions, drivers and scenarios.
"""
