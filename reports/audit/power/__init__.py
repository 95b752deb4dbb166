"""The auditor's own power: where spans lie in the trace, and what it draws there."""
