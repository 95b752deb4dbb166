"""The bench of a lab: its file, its instruments' calibration, and the registered drivers.

In: ``bench.toml``, calibration files. Out: drivers with options, and accuracies. Imported by commands, doctor,
engine, sessions, sweeps, drivers, fixtures and scenarios.
"""
