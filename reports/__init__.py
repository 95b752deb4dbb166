"""Show a ``Result`` as a table on the terminal, HTML, Markdown, JSON and pictures."""
