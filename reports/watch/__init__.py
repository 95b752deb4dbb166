"""Show a measurement while it is recorded: its progress on the terminal, and as JSON."""
