"""Turn recordings of other programs into run directories like any other.

In: an ``ImportedRun`` of an importer. Out: a run directory. Imported by commands, importers and ``reports.submission``.
"""
