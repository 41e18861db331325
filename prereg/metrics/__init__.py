"""Metrics by name: unit, direction, definition; and the code of a study's own metrics and checks."""
