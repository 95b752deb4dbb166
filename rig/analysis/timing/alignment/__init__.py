"""Align the clocks of meters with that of the device, by brackets, by the places of spans in a trace, and by edges of
pins.

In: screened traces, activity, timebases. Out: ``AlignedRail``. Imported by the analysis.
"""
