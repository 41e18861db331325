"""A study in one file that can be checked anywhere. Loads no torch."""
