"""SCPI multimeters and source meters over VISA."""
