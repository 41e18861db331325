"""Metrics of a model at rest: model and validation text in, plain numbers out. No files, no hypotheses."""
