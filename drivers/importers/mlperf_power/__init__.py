"""Sessions of MLPerf Power: PTDaemon and LoadGen logs."""
