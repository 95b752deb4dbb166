"""The command line: one file for each command.

In: arguments. Out: an exit code, text or one JSON document. Nobody imports this package.
"""
