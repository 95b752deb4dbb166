"""Keysight 34465A and 34470A multimeters."""
