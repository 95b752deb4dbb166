"""Hold what the stages of the analysis produce: quantities, the names of figures, and the result of a run.

In: nothing of the analysis. Out: ``Quantity``, ``FigureKey``, ``Finding``, ``Validity``, ``Result``.
Imported by all stages of the analysis, and by packages that read results.
"""
