"""The bench file of a lab: read with its lines, checked, made into devices and meters (``station``)."""
