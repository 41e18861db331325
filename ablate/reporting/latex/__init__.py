"""LaTeX of a report, for a paper: blocks, the parts that a paper takes in, and the works that they cite."""
