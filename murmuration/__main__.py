"""``python -m murmuration``: the command line."""

from murmuration.cli.main import main

if __name__ == "__main__":
    main()
