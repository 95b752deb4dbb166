"""For processes that tests start and whose pictures nobody looks at."""

UNDRAWN = "import reports.render; reports.render.draw = lambda result: {'latency': b'<svg />'}; "
"""A program that begins so draws no pictures, which take most of the time of a report."""
