"""The auditor: it computes the main figures of a recording by plain methods, and checks every rule.

It imports no ``rig.analysis``, so that it cannot share a defect of the estimators. It reads recordings by the rig's own
reader, as the report does.
"""
