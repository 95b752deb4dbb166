"""Spiking networks through PyNN, which runs in its own interpreter: NEST on a computer, and SpiNNaker.

In: a network file and events. Out: the label, the latency and the spikes of each presentation. Opened through the entry
points ``nest`` and ``spinnaker``.
"""
