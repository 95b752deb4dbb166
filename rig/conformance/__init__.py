"""Check what the rig requires of a device, a meter or a workload, by calling it; driver authors use this in tests.

In: an opened driver. Out: the rules that it keeps, or an error with those that it breaks. Imported by commands,
sessions and tests.
"""
