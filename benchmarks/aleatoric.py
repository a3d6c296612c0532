"""Cost of uncertainty in predictions: one pass through a network with a noise head, against T passes of dropout."""

import time

import jax
import numpy as np
import numpyro.distributions as dist
from record import record

import tunbridge as tb

FEATURES, REPEATS = 10, 50
METHODS = {
    "one pass, noise head": (tb.MAP(train=tb.Train(50)), tb.likelihoods.Heteroscedastic(), None),
    "one pass, one noise": (tb.MAP(train=tb.Train(50)), tb.likelihoods.Gaussian(dist.Gamma(0.5, 1.0)), None),
    "dropout": (tb.MCDropout(train=tb.Train(50)), tb.likelihoods.Heteroscedastic(), (10, 50, 100)),
}


def rows(num):
    return np.random.default_rng(1).normal(size=(num, FEATURES)).astype(np.float32)


def fitted(method, likelihood):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(500, FEATURES))
    model = tb.Model(tb.networks.MLP((256, 256)), tb.priors.Normal(tb.priors.fan_in(1.0)), likelihood)
    return method.fit(model, tb.Data(x, np.sin(x[:, 0])), key=jax.random.key(0), progress=False)


def milliseconds(posterior, x, passes):
    """Median and 95 % quantile of the milliseconds for mean and standard deviation at x."""
    seconds = []
    for _ in range(REPEATS + 1):
        began = time.perf_counter()
        predictive = posterior.predict(x, num=passes)
        np.asarray(predictive.mean), np.asarray(predictive.std)
        seconds.append(time.perf_counter() - began)
    return [1e3 * float(value) for value in np.quantile(seconds[1:], [0.5, 0.95])]


def latency():
    found = []
    for name, (method, likelihood, all_passes) in METHODS.items():
        posterior = fitted(method, likelihood)
        for passes in all_passes or (None,):
            for num in (1, 1000):
                median, high = milliseconds(posterior, rows(num), passes)
                row = {"method": name, "passes": passes or 1, "rows": num, "ms": median, "ms_95": high}
                found.append(row)
    return found


if __name__ == "__main__":
    record("aleatoric", {"latency": latency()})
