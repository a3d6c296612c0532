"""Samplers that look at all rows at every step."""

from tunbridge.core.data import Data, Stream
from tunbridge.core.errors import InputError
from tunbridge.core.types import Key
from tunbridge.inference.posteriors import Posterior
from tunbridge.inference.sampler import Sampler
from tunbridge.model.model import Model
from tunbridge.runtime.loop import Options


class AllRows(Sampler):
    """A sampler that is wrong if it sees some of the rows only."""

    def posteriors(self, model: Model, data: Data | Stream, key: Key, size: int, options: Options) -> list[Posterior]:
        """Refuse batches; then all chains."""
        if self.run.batch_size is not None or isinstance(data, Stream):
            got = "a stream of batches" if isinstance(data, Stream) else f"batch_size={self.run.batch_size}"
            expected = "all rows at every step, which this sampler needs to be exact"
            raise InputError(expected, got, "Leave batch_size out, and pass tb.Data; or use tb.SGHMC().")
        return super().posteriors(model, data, key, size, options)
