"""Judge: evidence to verdict.

`decide` is the only module that gives one; it imports neither the trainer nor the runner.
"""
