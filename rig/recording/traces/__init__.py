"""The readings of the meters: converted to watts, checked, written and read."""
