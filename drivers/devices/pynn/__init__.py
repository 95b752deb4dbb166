"""Spiking networks through PyNN, which runs in its own interpreter: NEST on a computer, and SpiNNaker.

The devices take a network file and events, and return the label, the latency and the spikes of each presentation. They
are opened through the entry points ``nest`` and ``spinnaker``.
"""
