"""What a worker of the tests may hold."""

import os
from pathlib import Path

from tunbridge.runtime import programs

MOST_BYTES = 1.6e9


def held_bytes():
    """What this process holds, where the system says so."""
    status = Path("/proc/self/statm")
    return int(status.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") if status.exists() else 0


def bound_memory(most=MOST_BYTES):
    """A worker forgets compiled programs when it holds more than its share; the folder keeps them."""
    if held_bytes() > most:
        programs.forget()
