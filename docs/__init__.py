"""Documentation for users; `docs.generator` writes the pages that follow from the code."""
