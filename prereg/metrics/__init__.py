"""Metrics by name: unit, direction, definition."""
