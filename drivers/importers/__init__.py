"""Read files that other programs recorded into an ``ImportedRun``: one module or package for each format.

In: a file or folder, and options. Out: an ``ImportedRun`` or several. Imported by ``rig import`` through entry points.
The formats share ``single_trace`` (options, clocks and windows of one instrument), ``windows``, ``time_axis``,
``csv_layout`` and ``csv_columns`` (tables), ``files`` and ``recognise`` (folders), ``refusals`` (errors).
"""
