"""The rig's requirements for a device, a meter or a workload, checked by calling it. Also for tests of driver authors.

In: an opened driver. Out: the rules that it keeps, or an error with those that it breaks. Imported by commands,
sessions and tests.
"""
