"""`python -m docs.generator` writes every generated page below docs/."""

from docs.generator import write

write()
