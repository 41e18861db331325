"""A decision and its evidence as a report: sections of blocks, charts, and one renderer per medium."""
