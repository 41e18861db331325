"""Statistics: paired tests, intervals, corrections and sequential levels, from differences alone."""
