"""Compiled CPU kernels, and the measured choice between them and torch's operators."""
