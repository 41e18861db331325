"""A GPT and its trainer: model, optimiser, random streams, devices. Knows no hypothesis and no file layout."""
