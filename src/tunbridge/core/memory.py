"""How much host memory is available."""

import os
import sys
from pathlib import Path


def available() -> int:
    """Bytes of host memory available (or installed, where only that is known); `sys.maxsize` where neither is known."""
    table = Path("/proc/meminfo")
    if table.exists():
        lines = dict(line.split(":") for line in table.read_text().splitlines())
        return 1024 * int(lines["MemAvailable"].split()[0])
    if "SC_PHYS_PAGES" in getattr(os, "sysconf_names", {}):
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return sys.maxsize
