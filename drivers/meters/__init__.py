"""Drivers of meters: one folder or file for each family; its factory is in ``meter.py`` or ``factory.py``."""
