"""`python -m ablate.gpt`, which makes the run that the environment names."""

import sys

from ablate.gpt.main import main

if __name__ == "__main__":
    sys.exit(main())
