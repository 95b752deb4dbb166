"""Keysight N6705, N6700 and N6900 power systems, by their external data log."""
