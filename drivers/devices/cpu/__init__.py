"""Devices on this computer's CPU: solvers, forecasters of a series, decoders of a movement, and a detector."""
