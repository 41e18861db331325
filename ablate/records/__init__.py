"""Records: run folders, sealed tables, imports; everything that running and judging share."""
