"""Decision rule: conditions, decision lists, and the proof that a list is complete."""
