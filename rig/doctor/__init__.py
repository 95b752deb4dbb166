"""Find faults of a bench: open, query, read and close each instrument under a deadline.

In: a bench file. Out: findings with remedies. Imported by commands.
"""
