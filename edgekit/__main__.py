"""``python -m edgekit``: the command line."""

from edgekit.cli import main

if __name__ == "__main__":
    main()
