"""Designs that write arms, runs or claims for a study: what they ask, and what they resolve to."""
