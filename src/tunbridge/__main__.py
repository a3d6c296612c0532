"""`python -m tunbridge` is the command line."""

from tunbridge.cli import main

if __name__ == "__main__":
    main()
