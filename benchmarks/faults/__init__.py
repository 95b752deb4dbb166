"""Deliberate faults around recordings; ``__main__`` says how each case may end."""
