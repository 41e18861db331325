"""Verification of everything frozen: in a repository, and in a bundle, one file with all evidence. Loads no torch."""
