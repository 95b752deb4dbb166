"""Links that several families of drivers share: serial lines, and workers in other interpreters."""
