"""The worker of the built-in trainer."""
