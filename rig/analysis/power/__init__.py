"""Readings on the device's time to idle, active and dynamic power with their uncertainty.

In: readings and ``Activity``. Out: quantities by rail and phase. Imported by the analysis.
"""
