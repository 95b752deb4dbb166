"""The command line: one file for each command.

In: arguments. Out: an exit code, text or one JSON document. No other package of the rig imports this one.
"""
