"""The bench of a lab: its file, its instruments' calibration, and what drivers are registered.

In: ``bench.toml``, calibration files. Out: drivers with options, accuracies. Imported by sessions, sweeps, drivers.
"""
