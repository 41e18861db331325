"""Study: the models of its file, claims and arms, loading and validation."""
