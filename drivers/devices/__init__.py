"""Systems under test: one folder for each family, its factory in ``device.py``."""
