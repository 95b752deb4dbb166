"""Find faults of a bench: each instrument is opened, asked, read and closed under a deadline.

In: a bench file. Out: findings with remedies. Imported by commands.
"""
