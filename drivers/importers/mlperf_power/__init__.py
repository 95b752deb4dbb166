"""MLPerf Power: the logs of PTDaemon (the meter) and of LoadGen (the system under test).

In: a folder of results. Out: an ``ImportedRun`` for each measured run.
"""
