"""Align the clocks of meters with that of the device, by brackets, by where spans are in a trace, and by edges of pins.

In: screened traces, activity, timebases. Out: ``AlignedRail``. Imported by the analysis.
"""
