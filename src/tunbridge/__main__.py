"""Entry point of the command line: `tunbridge`, or `python -m tunbridge`."""

import signal
import sys


def main() -> None:
    """Run the command line; an interrupt during imports ends with a short message, like later interrupts.

    Interrupts while the process ends are ignored: by then everything is done, and said.
    """
    try:
        from tunbridge import cli

        cli.main()
    except KeyboardInterrupt:
        print("\nInterrupted.", file=sys.stderr)
        sys.exit(130)
    finally:
        signal.signal(signal.SIGINT, signal.SIG_IGN)


if __name__ == "__main__":
    main()
