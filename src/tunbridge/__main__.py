"""Entry point of the command line: `tunbridge`, or `python -m tunbridge`."""

import os
import signal
import sys
from typing import Any


def main() -> None:
    """Run the command line; an interrupt during imports ends with a short message, like later interrupts.

    Interrupts while the process ends are ignored: by then everything is done, and said.
    """
    try:
        if interruptible := signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            signal.signal(signal.SIGINT, _leave)
        from tunbridge import cli

        if interruptible:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        cli.main()
    except KeyboardInterrupt:
        print("\nInterrupted.", file=sys.stderr)
        sys.exit(130)
    finally:
        signal.signal(signal.SIGINT, signal.SIG_IGN)


def _leave(*_: Any) -> None:
    """End the process at once: nothing is written yet, and an exception within an extension's import may crash it."""
    os.write(2, b"\nInterrupted.\n")
    os._exit(130)


if __name__ == "__main__":
    main()
