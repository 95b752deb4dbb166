"""Joulescope JS110 and JS220 over USB."""
