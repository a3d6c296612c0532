"""Interrupts (Ctrl-C, SIGINT) that arrive as such at the command line, whatever code they struck.

Python ignores an exception in a finaliser or in a callback of a weak reference, and an extension may replace one by
an error of its own (matplotlib's renderer says "Invalid bounding box").
"""

import contextlib
import signal
import sys
import threading
from collections.abc import Iterator
from types import FrameType
from typing import Any


class _Heard:
    """Whether the process has been interrupted since the command began."""

    yes = False


@contextlib.contextmanager
def heard() -> Iterator[None]:
    """Note interrupts, and repeat those that Python ignored; `kept` tells errors that come after one."""
    _Heard.yes = False
    before, timers = sys.unraisablehook, list[threading.Timer]()
    handler = signal.getsignal(signal.SIGINT)
    listens = callable(handler) and threading.current_thread() is threading.main_thread()

    def note(number: int, frame: FrameType | None) -> Any:
        _Heard.yes = True
        return handler(number, frame) if callable(handler) else None

    def hook(unraisable: Any) -> None:
        if unraisable.exc_type is not KeyboardInterrupt:
            before(unraisable)
            return
        timers.append(threading.Timer(0.01, _repeat))
        timers[-1].daemon = True
        timers[-1].start()

    sys.unraisablehook = hook
    if listens:
        signal.signal(signal.SIGINT, note)
    try:
        yield
    finally:
        if listens:
            signal.signal(signal.SIGINT, handler)
        sys.unraisablehook = before
        for timer in timers:
            timer.cancel()


@contextlib.contextmanager
def kept() -> Iterator[None]:
    """Raise KeyboardInterrupt for an error after an interrupt was heard: it is what the interrupt became."""
    try:
        yield
    except Exception as error:
        if _Heard.yes:
            raise KeyboardInterrupt from error
        raise


def _repeat() -> None:
    """Interrupt the main thread, where the system allows also in the middle of a wait."""
    if hasattr(signal, "pthread_kill"):
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
    else:
        signal.raise_signal(signal.SIGINT)
