"""The report for a paper: blocks as LaTeX, the parts that a paper takes in, and the works that they cite."""
