"""Keep the rows of `tunbridge bench` for the documentation.

    tunbridge bench SUITE --out FOLDER ...
    python benchmarks/kept_rows.py FOLDER [FOLDER ...] "the command that made it"
    -> benchmarks/results/bench_SUITE.json, a file for each suite in the folders

Of several folders, as of several machines, a row that two have is taken from the first. Curves are kept of the suite
whose curves the documentation draws; FOLDER/report.html draws all.
"""

import sys
from pathlib import Path

from record import record

from tunbridge.bench.store import Store

DRAWN = ("shift",)
IDENTITY = ("suite", "task", "split", "method", "key")


def main(*folders: str, command: str) -> None:
    rows: dict[tuple, dict] = {}
    for folder in folders:
        with Store(Path(folder) / "results.sqlite") as store:
            for row in store.rows():
                rows.setdefault(tuple(row[name] for name in IDENTITY), row)
    for suite in dict.fromkeys(row["suite"] for row in rows.values()):
        kept = [row if suite in DRAWN else row | {"curves": {}} for row in rows.values() if row["suite"] == suite]
        found = {"made by": command, "rows": kept}
        record(f"bench_{suite}", found, command=f"kept_rows.py FOLDER {command!r}", show=False)
        print(f"bench_{suite}.json: {len(kept)} rows, {sum(row['status'] == 'failed' for row in kept)} failed")


if __name__ == "__main__":
    main(*sys.argv[1:-1], command=sys.argv[-1])
