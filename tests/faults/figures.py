"""How often the tests of faults do what they do, from their own constants: a table for `docs/reliability.md`.

``PYTHONPATH=tests python -m faults.figures`` prints it; `test_figures` compares the page with it.
"""

from faults import calls, test_calls, test_damage, test_growth, test_interrupts, test_room_calls, test_writers
from faults.writers import WRITERS
from inference import test_store
from runtime import test_checkpoint

RAW = "no error but Tunbridge's own, no silent NaN, none longer than 20 s"


def rows():
    """What is done, how often, and what every single time must come out for the tests to pass."""
    times, estimators = test_calls.TIMES, (calls.tb.BayesianRegressor, calls.tb.BayesianClassifier)
    parameters = sum(len(calls.taken(make)) for make in estimators)
    methods = test_calls.PREDICTIVES * len(test_calls.METHODS) + 2
    functions, others = len(test_calls.FUNCTIONS), len(test_room_calls.FUNCTIONS)
    interrupts, processes = test_interrupts.INTERRUPTS, test_interrupts.KILLS
    commands = len(test_interrupts.COMMANDS)
    return [
        (f"random calls of {len(test_calls.CLASSES)} public classes", len(test_calls.CLASSES) * times["class"], RAW),
        (
            f"random calls of {functions + others} public functions",
            functions * times["function"] + others * test_room_calls.TIMES,
            RAW,
        ),
        ("random calls of `sample` and `predict` of posteriors", 2 * test_calls.POSTERIORS * times["posterior"], RAW),
        (f"random calls of {methods} methods of predictives and models", methods * times["method"], RAW),
        ("random calls of `fit` and `Data`", times["fit"] + times["data"], RAW),
        ("wrong parameters of the estimators", parameters * test_room_calls.VALUES, RAW),
        (
            f"cut, flipped and overwritten bytes in {len(test_damage.KINDS)} kinds of files",
            len(test_damage.KINDS) * test_damage.FILES,
            "an error that names the file, or the very same content",
        ),
        ("damaged tables", test_damage.TABLES, "a table, or an error of one sentence"),
        (
            f"kill -9 of {len(WRITERS)} kinds of writers",
            len(WRITERS) * test_writers.KILLS,
            "a whole version of every file",
        ),
        (
            "kill -9 of fits with a checkpoint, and of saves",
            test_checkpoint.KILLS + test_store.KILLS,
            "resumed to the bit; a whole posterior",
        ),
        ("writers on a full disk", len(WRITERS), "an error, and the old version stays"),
        ("races of two processes that write the same", len(WRITERS), f"a whole version, of {2 * test_writers.RACES}"),
        (
            f"interrupts of {commands} commands",
            commands * (interrupts + processes),
            "what is said is true; the command completes with the same result",
        ),
        (f"kill -9 of {commands} commands", commands * processes, "the command completes with the same result"),
        ("fits of ever new shapes in one process", test_growth.MOST_FITS, "at most 2 GB"),
    ]


def table():
    """The table in Markdown."""
    lines = [f"| {what} | {number:,} | {result} |" for what, number, result in rows()]
    return "\n".join(["| What is done | Times | What comes out every time |", "|---|---|---|", *lines])


if __name__ == "__main__":
    print(table())
