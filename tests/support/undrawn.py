"""For processes that tests start and whose pictures nobody looks at."""

UNDRAWN = "import reports.figures.draw; reports.figures.draw.draw = lambda result: {'latency': b'<svg />'}; "
"""A program that begins so draws no pictures, which take most of the time of a report."""
