"""``python -m jaxseq`` is the command ``jaxseq``."""

import sys

from jaxseq.cli import main

if __name__ == "__main__":
    sys.exit(main())
