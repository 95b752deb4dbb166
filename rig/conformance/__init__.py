"""The rig's requirements for a device or a meter, checked by calling it. For driver authors, in their own tests.

In: an opened driver. Out: a report of findings. Imported by tests.
"""
