"""A grid of measurements: frozen, recorded cell by cell, tabled. ``command`` is where it begins."""
