"""Primate reaching: the velocity of a hand from spikes. Opened through the entry point ``primate-reaching``."""
