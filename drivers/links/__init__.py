"""Links that several families of drivers use: serial lines, and workers in other interpreters."""
