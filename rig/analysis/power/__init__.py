"""Compute idle, active and dynamic power with their uncertainty from readings on the device's time.

In: readings and ``Activity``. Out: quantities by rail and phase. Imported by the analysis and reports.
"""
