"""Every metric by name: unit, direction, definition; and a study's own metric and check code."""
