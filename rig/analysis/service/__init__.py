"""Compute throughput, latency, deadlines, and how soon a system follows a change of scene.

In: host stamps of the replies. Out: quantities. Imported by the analysis.
"""
