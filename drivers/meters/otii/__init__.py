"""Qoitech Otii over its TCP server."""
