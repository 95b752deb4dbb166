"""The model of one rail's trace: blocks, noise, levels and their changes."""
