"""The thing under study: a GPT, its text, its batches, its optimiser. Knows no hypothesis and no file layout."""
