"""Columns of tables and traces, in Arrow files and in buffers that wait to be written."""
