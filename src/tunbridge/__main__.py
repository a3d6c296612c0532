"""Entry point of the command line: `tunbridge`, or `python -m tunbridge`."""

import contextlib
import os
import signal
import sys
from types import FrameType


def main() -> None:
    """Run the command line; an interrupt, during imports too, ends with a short message and code 130.

    Interrupts while the process ends are ignored: by then everything is done, and said.
    """
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _interrupt)
    try:
        from tunbridge import cli

        cli.main()
    except KeyboardInterrupt:
        print("\nInterrupted.", file=sys.stderr)
        _leave()
    except SystemExit as end:
        if end.code == 130:  # the command line has said what is saved
            _leave()
        raise
    finally:
        signal.signal(signal.SIGINT, signal.SIG_IGN)


def _interrupt(_: int, frame: FrameType | None) -> None:
    """Raise KeyboardInterrupt; within an import end the process, as an exception there may crash an extension."""
    while frame is not None:
        if frame.f_code.co_filename == "<frozen importlib._bootstrap>":
            os.write(2, b"\nInterrupted.\n")
            os._exit(130)
        frame = frame.f_back
    raise KeyboardInterrupt


def _leave() -> None:
    """End the process at once: Python would end it by a signal if the interrupt came while it ran generated code."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError):
            stream.flush()
    os._exit(130)


if __name__ == "__main__":
    main()
