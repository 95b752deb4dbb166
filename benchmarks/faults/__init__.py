"""Deliberate faults. Each case must end complete, be reported up to its last whole batch, or raise a typed error."""
