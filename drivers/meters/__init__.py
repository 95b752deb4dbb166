"""Instruments: one folder or file for each family, its factory in ``meter.py`` or ``factory.py``."""
