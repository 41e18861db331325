"""Output of commands, as sections of blocks: one module for each subject."""
