"""A bundle: one file with all evidence of a study. Written, read byte for byte, and checked without a repository."""
