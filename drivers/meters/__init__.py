"""Drivers of meters: one folder for each family, with its factory in ``meter.py``, or one file."""
