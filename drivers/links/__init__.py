"""Links that several families of drivers use: serial lines, and worker processes in other Python interpreters."""
