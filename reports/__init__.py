"""Show a ``Result`` as a table on the terminal, and as HTML, Markdown, JSON and pictures."""
