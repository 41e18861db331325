"""`python -m ablate`, which is the command `ablate`."""

from ablate.cli import main

if __name__ == "__main__":
    main()
