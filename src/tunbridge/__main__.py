"""Entry point of the command line: `tunbridge`, or `python -m tunbridge`."""

import sys


def main() -> None:
    """Run the command line; an interrupt during imports ends with a short message, like later interrupts."""
    try:
        from tunbridge import cli

        cli.main()
    except KeyboardInterrupt:
        print("\nInterrupted.", file=sys.stderr)
        sys.exit(130)


if __name__ == "__main__":
    main()
