"""The auditor: it computes the main figures of a recording by plain methods, and checks every rule.

It imports no ``rig.analysis``, so that no defect of the estimators is its own. It reads as the report does.
"""
