"""The auditor's own estimate of power: the places of spans in the trace, and the power of the device there."""
