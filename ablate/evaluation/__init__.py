"""Evaluation: metrics of a model at rest, from model and validation text to plain numbers. No files, no hypotheses."""
