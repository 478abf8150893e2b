"""`python -m chiaroscuro` is the command `chiaro`."""

import sys

from chiaroscuro.cli import main

if __name__ == "__main__":
    sys.exit(main())
