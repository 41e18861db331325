"""Built-in trainer: a GPT, its optimiser, random streams and devices. Knows no hypothesis and no file layout."""
