"""`python -m tunbridge` is the command line, and `tunbridge` too."""

import sys


def main() -> None:
    """Run the command line; an interrupt while it is being imported ends with a line, as one later does."""
    try:
        from tunbridge import cli

        cli.main()
    except KeyboardInterrupt:
        print("\nInterrupted.", file=sys.stderr)
        sys.exit(130)


if __name__ == "__main__":
    main()
