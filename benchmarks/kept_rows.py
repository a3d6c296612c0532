"""Keep the rows of `tunbridge bench` for the documentation.

    tunbridge bench SUITE --out FOLDER ...
    python benchmarks/kept_rows.py FOLDER "the command that made it"
    -> benchmarks/results/bench_SUITE.json, a file for each suite in the folder

Curves are left out; FOLDER/report.html draws them.
"""

import sys
from pathlib import Path

from record import record

from tunbridge.bench.store import Store


def main(folder: str, command: str) -> None:
    with Store(Path(folder) / "results.sqlite") as store:
        rows = store.rows()
    for suite in dict.fromkeys(row["suite"] for row in rows):
        kept = [row | {"curves": {}} for row in rows if row["suite"] == suite]
        record(
            f"bench_{suite}", {"made by": command, "rows": kept}, command=f"kept_rows.py FOLDER {command!r}", show=False
        )
        print(f"bench_{suite}.json: {len(kept)} rows, {sum(row['status'] == 'failed' for row in kept)} failed")


if __name__ == "__main__":
    main(*sys.argv[1:])
