"""Sections of the report, one module for each: blocks only, no Markdown and no HTML."""
