"""The beginning of programs that tests start, whose pictures nobody views."""

UNDRAWN = "import reports.figures.draw; reports.figures.draw.draw = lambda result: {'latency': b'<svg />'}; "
"""A program with this beginning draws no pictures, which take most of a report's time."""
