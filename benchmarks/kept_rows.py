"""Collect the rows of `tunbridge bench` runs for the documentation.

    tunbridge bench SUITE --out FOLDER ...
    python benchmarks/kept_rows.py NAME FOLDER [FOLDER ...] "the command that made it"
    -> benchmarks/results/bench_NAME.json

If several folders, for instance from several machines, have the same row, it is taken from the first. Only the curves
that the documentation draws are kept; FOLDER/report.html draws all.
"""

import sys
from pathlib import Path

from record import record

from tunbridge.bench.benchmark.store import IDENTITY, Store

DRAWN = ("shift",)


def main(name: str, first: str, *others: str, command: str) -> None:
    rows: dict[tuple, dict] = {}
    for folder in (first, *others):
        with Store(Path(folder) / "results.sqlite") as store:
            for row in store.rows():
                rows.setdefault(tuple(row[part] for part in IDENTITY), row)
    kept = [row if name in DRAWN else row | {"curves": {}} for row in rows.values()]
    found = {"made by": command, "rows": kept}
    record(f"bench_{name}", found, command=f"kept_rows.py {name} FOLDER {command!r}", show=False)
    print(f"bench_{name}.json: {len(kept)} rows, {sum(row['status'] == 'failed' for row in kept)} failed")


if __name__ == "__main__":
    main(*sys.argv[1:-1], command=sys.argv[-1])
