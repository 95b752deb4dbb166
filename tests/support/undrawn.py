"""The beginning of programs that tests start, whose pictures nobody views."""

UNDRAWN = "import reports.pictures.draw; reports.pictures.draw.draw = lambda result: {'latency': b'<svg />'}; "
"""A program with this beginning draws no pictures, which take most of a report's time."""
