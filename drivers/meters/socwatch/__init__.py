"""Intel SoC Watch, run as a program."""
