"""How a system serves: throughput, latency, deadlines, and how soon it follows a change of scene.

In: host stamps of the replies. Out: quantities. Imported by the analysis.
"""
