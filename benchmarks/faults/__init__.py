"""Faults on purpose: every case must end whole, reported to its last whole batch, or refused with a typed error."""
