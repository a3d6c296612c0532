"""What each method promises on the exact problems: one table, each entry with its tolerance."""

import math
from typing import Literal, NamedTuple

Kind = Literal["exact", "biased", "diagonal", "mean", "mode", "none", "refused"]


class Promise(NamedTuple):
    """What a method's posterior gets right in function space.

    `kind` is "exact" (mean and standard deviation, up to the Monte Carlo error of the default run), "biased" (the same
    with the bias of the default step size, as measured), "diagonal" (the mean, and the standard deviation of
    independent weights of variances 1 / Lambda_ii), "mean", "mode" (the function of the most probable weights), "none",
    or "refused" if the method does not support such a model. `tolerance` is in posterior standard deviations.
    """

    kind: Kind
    tolerance: float = math.inf


PROMISES: dict[str, dict[str, Promise]] = {
    "map": {
        "linear": Promise("mean", 1e-3),
        "linear_unknown": Promise("none"),
        "logistic": Promise("mode", 1e-3),
        "tanh_unit": Promise("mode", 1e-3),
    },
    "ensemble": {
        "linear": Promise("mean", 1e-3),
        "linear_unknown": Promise("none"),
        "logistic": Promise("mode", 1e-3),
        "tanh_unit": Promise("mode", 1e-3),
    },
    "mcdropout": {  # the exact problems have no hidden layer to drop: it is MAP there
        "linear": Promise("mean", 1e-3),
        "linear_unknown": Promise("none"),
        "logistic": Promise("mode", 1e-3),
        "tanh_unit": Promise("mode", 1e-3),
    },
    "swag": {  # the mean of a path of SGD; its spread is 0.1 to 2 times the posterior's, by problem, input and key
        "linear": Promise("mean", 0.5),
        "linear_unknown": Promise("mean", 0.5),
        "logistic": Promise("mean", 1.0),
        "tanh_unit": Promise("mean", 1.0),
    },
    "laplace": {  # unknown noise and scale are fixed at one value; it is normal although the posterior is not
        "linear": Promise("exact", 0.12),
        "linear_unknown": Promise("biased", 0.2),
        "logistic": Promise("biased", 0.4),
        "tanh_unit": Promise("none"),
    },
    "neurallinear": {  # unknown noise is fixed at its measured value, and the spread depends on it
        "linear": Promise("exact", 0.05),
        "linear_unknown": Promise("mean", 0.15),
        "logistic": Promise("refused"),
        "tanh_unit": Promise("refused"),
    },
    "vbll": {  # no hidden layers here; unknown noise from held-out rows, prior scales at their medians
        "linear": Promise("exact", 0.05),
        "linear_unknown": Promise("mean", 0.3),
        "logistic": Promise("biased", 0.2),
        "tanh_unit": Promise("refused"),
    },
    "bayesbybackprop": {  # independent weights
        "linear": Promise("diagonal", 0.12),
        "linear_unknown": Promise("mean", 0.2),
        "logistic": Promise("mean", 0.2),
        "tanh_unit": Promise("mean", 0.5),
    },
    "meanfield": {  # independent weights
        "linear": Promise("diagonal", 0.12),
        "linear_unknown": Promise("mean", 0.2),
        "logistic": Promise("mean", 0.2),
        "tanh_unit": Promise("mean", 0.5),
    },
    "lowrank": {  # its rank of ten exceeds the number of weights
        "linear": Promise("exact", 0.12),
        "linear_unknown": Promise("biased", 0.12),
        "logistic": Promise("biased", 0.12),
        "tanh_unit": Promise("mean", 0.3),
    },
    "matrixnormalvi": {  # the bias is independent of the weights
        "linear": Promise("mean", 0.12),
        "linear_unknown": Promise("mean", 0.2),
        "logistic": Promise("mean", 0.2),
        "tanh_unit": Promise("mean", 0.5),
    },
    "fullrank": {  # normal although the posterior is not
        "linear": Promise("exact", 0.12),
        "linear_unknown": Promise("biased", 0.12),
        "logistic": Promise("biased", 0.12),
        "tanh_unit": Promise("mean", 0.3),
    },
    "advi": {  # mean-field
        "linear": Promise("diagonal", 0.12),
        "linear_unknown": Promise("mean", 0.2),
        "logistic": Promise("mean", 0.2),
        "tanh_unit": Promise("mean", 0.5),
    },
    "ivon": {  # independent weights
        "linear": Promise("diagonal", 0.12),
        "linear_unknown": Promise("mean", 0.2),
        "logistic": Promise("mean", 0.2),
        "tanh_unit": Promise("mean", 0.5),
    },
    "randomwalk": {
        "linear": Promise("exact", 0.12),
        "linear_unknown": Promise("exact", 0.15),
        "logistic": Promise("exact", 0.12),
        "tanh_unit": Promise("exact", 0.25),
    },
    "mala": {  # a chain may stay long in the narrow tails of the tanh unit
        "linear": Promise("exact", 0.12),
        "linear_unknown": Promise("exact", 0.25),
        "logistic": Promise("exact", 0.12),
        "tanh_unit": Promise("exact", 0.4),
    },
    "ula": {
        "linear": Promise("biased", 0.2),
        "linear_unknown": Promise("biased", 0.25),
        "logistic": Promise("biased", 0.2),
        "tanh_unit": Promise("biased", 0.3),
    },
    "hmc": {
        "linear": Promise("exact", 0.12),
        "linear_unknown": Promise("exact", 0.12),
        "logistic": Promise("exact", 0.12),
        "tanh_unit": Promise("exact", 0.25),
    },
    "nuts": {
        "linear": Promise("exact", 0.12),
        "linear_unknown": Promise("exact", 0.15),
        "logistic": Promise("exact", 0.12),
        "tanh_unit": Promise("exact", 0.25),
    },
    "mclmc": {
        "linear": Promise("biased", 0.2),
        "linear_unknown": Promise("biased", 0.25),
        "logistic": Promise("biased", 0.2),
        "tanh_unit": Promise("biased", 0.4),
    },
    "adjustedmclmc": {
        "linear": Promise("exact", 0.12),
        "linear_unknown": Promise("exact", 0.15),
        "logistic": Promise("exact", 0.12),
        "tanh_unit": Promise("exact", 0.25),
    },
    "ellipticalslice": {
        "linear": Promise("exact", 0.12),
        "linear_unknown": Promise("exact", 0.12),
        "logistic": Promise("exact", 0.12),
        "tanh_unit": Promise("exact", 0.15),
    },
    "sgld": {  # bias of its step size: twice that of SGHMC, and slower
        "linear": Promise("biased", 0.15),
        "linear_unknown": Promise("biased", 0.2),
        "logistic": Promise("biased", 0.15),
        "tanh_unit": Promise("biased", 0.2),
    },
    "sghmc": {
        "linear": Promise("biased", 0.12),
        "linear_unknown": Promise("biased", 0.15),
        "logistic": Promise("biased", 0.12),
        "tanh_unit": Promise("biased", 0.15),
    },
    "sgnht": {
        "linear": Promise("biased", 0.12),
        "linear_unknown": Promise("biased", 0.15),
        "logistic": Promise("biased", 0.12),
        "tanh_unit": Promise("biased", 0.15),
    },
    "temperedsmc": {  # 2,000 particles
        "linear": Promise("exact", 0.15),
        "linear_unknown": Promise("exact", 0.15),
        "logistic": Promise("exact", 0.15),
        "tanh_unit": Promise("exact", 0.15),
    },
}
"""Promises by method and problem."""
