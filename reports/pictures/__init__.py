"""Pictures of a result, as SVG."""
