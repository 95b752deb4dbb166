"""What leaves the lab: sessions become one folder that a reviewer reads and a program checks; results are compared.

In: verified sessions, and what only the submitter knows. Out: a submission folder, its archive and its signature.
``rig.commands`` imports this package.
"""
