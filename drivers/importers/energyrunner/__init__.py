"""Energy traces of EEMBC EnergyRunner and of the runner of MLPerf Tiny 1.3.

In: the folder of a session. Out: an ``ImportedRun`` for each trace.
"""
