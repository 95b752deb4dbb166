"""Systems under test: one folder for each family, with its factory in ``device.py``."""
