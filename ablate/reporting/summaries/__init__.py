"""What the commands print, as sections of blocks: one module for each subject."""
