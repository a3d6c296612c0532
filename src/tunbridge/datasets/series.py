"""Series as rows for autoregression."""

from typing import Any

import numpy as np

from tunbridge.core.data import Data
from tunbridge.core.declared import Count, as_floats, checked
from tunbridge.core.errors import InputError


@checked
def lagged(series: Any, lags: Count) -> Data:
    """Rows of a series for autoregression: y is each value, x the `lags` values before it, the latest first.

    Parameters
    ----------
    series
        Values in the order of time, (times,).
    lags
        Number of earlier values per row. The first `lags` values have no row.

    Examples
    --------
    >>> rows = lagged([1.0, 2.0, 3.0, 4.0], 2)
    >>> print(rows.x, rows.y[:, 0])
    [[2. 1.]
     [3. 2.]] [3. 4.]
    """
    values = as_floats(series, "series")
    if values.ndim != 1 or len(values) <= lags:
        raise InputError(f"a series (times,) of more than {lags} values", f"shape {values.shape}", "Take fewer lags.")
    before = np.lib.stride_tricks.sliding_window_view(values[:-1], lags)[:, ::-1]
    return Data(np.ascontiguousarray(before), values[lags:])
