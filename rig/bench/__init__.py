"""The bench of a lab: its file, its instruments' calibration, and the registered drivers.

In: ``bench.toml``, calibration files. Out: drivers with options, and accuracies. Imported by sessions, sweeps, drivers.
"""
