"""Report: a decision and its evidence as sections of blocks and charts, and one renderer per medium."""
