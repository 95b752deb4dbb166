"""Read files that other programs recorded into an ``ImportedRun``: one module or package for each format.

In: a file or folder, and options. Out: an ``ImportedRun`` or several. ``rig import`` finds the formats by entry points.
"""
