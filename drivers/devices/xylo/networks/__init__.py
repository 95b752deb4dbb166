"""Networks for a Xylo: events, files, NIR graphs, the fit to the chip, training, and their operations."""
