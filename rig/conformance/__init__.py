"""What the rig asks of a device or a meter, checked by calling it. For driver authors, in tests of their own.

In: an opened driver. Out: a report of findings. Imported by tests.
"""
