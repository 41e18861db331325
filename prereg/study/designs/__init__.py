"""Designs of a study: what each lets a file say, what it resolves to, and what is refused."""
