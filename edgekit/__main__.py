"""``python -m edgekit``: the command line."""

from edgekit.cli.verbs import main

if __name__ == "__main__":
    main()
