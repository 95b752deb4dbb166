"""The auditor: it reads a recording by itself, computes the main figures by plain methods, and checks every rule.

It imports of the rig only ``rig.types`` and ``rig.errors``, so that no defect of the estimators is its own.
"""
