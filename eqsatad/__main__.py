"""``python -m eqsatad``: the same as the command ``eqsatad``."""

from eqsatad.cli import main

if __name__ == "__main__":
    main()
