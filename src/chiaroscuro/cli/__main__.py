"""`python -m chiaroscuro.cli`: the same as `chiaro`."""

import sys

from chiaroscuro.cli import main

if __name__ == "__main__":
    sys.exit(main())
