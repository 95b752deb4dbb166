"""Keysight N6705 and N6700 power systems, by their external data log."""
