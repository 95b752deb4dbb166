"""Boards that speak the MLPerf Tiny protocol over a serial line."""
