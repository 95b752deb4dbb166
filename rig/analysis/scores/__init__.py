"""Compute scores from the answers of a run: accuracy, predictions, spikes, and scores by the recorder's own method.

In: a ``Run``. Out: figures, and checks of answers. Imported by the analysis, comparisons and conformance.
"""
