"""Compute what the answers of a run score: accuracy, predictions, spikes, and the scores of the recorder's own method.

In: a ``Run``. Out: figures, and checks of answers. Imported by the analysis.
"""
