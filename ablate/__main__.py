"""`python -m ablate` is the command `ablate`."""

from ablate.cli import main

main()
