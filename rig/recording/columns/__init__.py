"""Columns of tables and traces, in Arrow files and in buffers in memory."""
