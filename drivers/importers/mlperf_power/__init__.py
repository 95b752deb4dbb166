"""MLPerf Power: the logs of PTDaemon (the meter) and of LoadGen (the system under test).

The importer reads a folder of results, and returns an ``ImportedRun`` for each measured run.
"""
