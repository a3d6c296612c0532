"""The exception classes, and the result codes of steps inside jit, each with a sentence for the user."""

import enum


class TunbridgeError(Exception):
    """Anything that Tunbridge raises on purpose."""


class InputError(TunbridgeError, ValueError):
    """A wrong call, refused before anything is computed: what was expected, what was given, what to do."""

    def __init__(self, expected: str, got: str, do: str):
        super().__init__(expected, got, do)

    def __str__(self) -> str:
        expected, got, do = self.args
        return f"Expected {expected}; got {got}. {do}"


class BusyError(TunbridgeError):
    """A folder or file that another process, or another thread of this one, is writing to."""


class LoadError(TunbridgeError):
    """A file that cannot be loaded: missing, damaged, written by a newer Tunbridge, or of another model."""


class CheckpointError(LoadError):
    """A checkpoint that is damaged, or that belongs to another run."""


class ConvergenceWarning(UserWarning):
    """A convergence diagnostic is poor: the message gives its value and the next step."""


class Result(enum.IntEnum):
    """Outcome of a step: an integer code inside jit, a sentence outside."""

    SUCCESSFUL = 0
    NONFINITE_OBJECTIVE = 1
    NONFINITE_STATE = 2
    NONFINITE_DENSITY = 3
    DIVERGED = 4

    @property
    def sentence(self) -> str:
        """The outcome as a sentence for the user."""
        return _SENTENCES[self]


_SENTENCES = {
    Result.SUCCESSFUL: "The step succeeded.",
    Result.NONFINITE_OBJECTIVE: (
        "The log density was NaN or infinite. Try a smaller step size, standardise x and y, "
        "or give the noise and the prior scales values that fit the data's units."
    ),
    Result.NONFINITE_DENSITY: (
        "The log density of a chain is NaN or infinite at its start or at its current position. Start elsewhere with "
        "init=, standardise x and y, or give the noise and the prior scales values that fit the units of the data."
    ),
    Result.DIVERGED: (
        "The chain diverged: the log density became NaN or infinite. Use a smaller step size, or leave it out to "
        "have it measured; standardise x and y."
    ),
    Result.NONFINITE_STATE: "The state became NaN or infinite. Try a smaller step size.",
}


class NumericalError(TunbridgeError, ArithmeticError):
    """A numerical failure inside the loop: `result` says which, `step` and `member` say where."""

    def __init__(self, result: Result, step: int, member: int, saved: str):
        super().__init__(result, step, member, saved)
        self.result, self.step, self.member, self.saved = result, step, member, saved

    def __str__(self) -> str:
        return f"Stopped at step {self.step} of member {self.member}: {self.result.sentence} {self.saved}"
