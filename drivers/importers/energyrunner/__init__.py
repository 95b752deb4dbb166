"""Sessions of the EnergyRunner of MLPerf Tiny."""
