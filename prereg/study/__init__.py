"""What a user writes: the models of a study file, its claims and arms, loading and validation."""
