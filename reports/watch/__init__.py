"""A measurement that is going on, as a page and on the terminal."""
