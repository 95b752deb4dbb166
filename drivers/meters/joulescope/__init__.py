"""Joulescope JS110, JS220 and JS320 over USB."""
