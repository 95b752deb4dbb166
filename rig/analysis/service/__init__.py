"""Compute throughput, latency, the share of deadlines met, and how soon a device recognises a change of scene.

In: host stamps and outputs of the replies. Out: quantities. Imported by the analysis and reports.
"""
