"""Audit: checks of the evidence before any inference, each with its consequence."""
