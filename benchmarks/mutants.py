"""Mutation tests: thirty signs, factors and indices, changed one at a time, and whether the fast tests notice.

``python benchmarks/mutants.py [NAME ...]`` writes results/mutants.json, which `testing.py` puts into docs/testing.md.
Each change is made in a copy of the package; the test files that should notice it run until one test fails.
"""

import os
import shutil
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

from record import record, recorded

ROOT = Path(__file__).parents[1]
PROMISES = "contracts/test_methods.py -k promise and "


class Mutant(NamedTuple):
    """A change of the source, and the tests that should fail: pytest's arguments, below tests/."""

    file: str
    right: str
    wrong: str
    tests: str


MUTANTS = {
    "N/n of a batch": Mutant("model/model.py", "self.num / batch.num * jnp", "jnp", "model/test_model.py"),
    "weights of rows": Mutant("model/model.py", "terms * batch.weight", "terms", "model/test_model.py"),
    "temperature of a target": Mutant(
        "model/model.py",
        "(total - jacobian) / self.temperature + jacobian",
        "total / self.temperature",
        "model/test_temperature.py",
    ),
    "Jacobian of unknowns": Mutant(
        "model/transforms.py", "jnp.sum(transform.log_abs", "-jnp.sum(transform.log_abs", PROMISES + "nuts"
    ),
    "Jacobian of half-Cauchy scales": Mutant(
        "model/transforms.py",
        "- (0.0 if jacobian else jnp.sum(u))",
        "- (jnp.sum(u) if jacobian else 0.0)",
        "model/priors/test_priors.py",
    ),
    "fan-in of a prior": Mutant(
        "model/priors/base.py",
        "entry.scale / math.sqrt(role.fan_in(leaf.shape))",
        "entry.scale / role.fan_in(leaf.shape)",
        "model/priors/test_priors.py model/priors/test_prior_variances.py",
    ),
    "normaliser of Student's t": Mutant(
        "model/priors/tails.py", "r.size * top - half", "top - half", "model/priors/test_priors.py"
    ),
    "noise of SGLD": Mutant(
        "inference/sgmcmc/splittings.py",
        "jnp.sqrt(noise / push.step_size)",
        "(noise / push.step_size)",
        "inference/sgmcmc/test_theory.py",
    ),
    "noise after friction in BAOAB": Mutant(
        "inference/sgmcmc/splittings.py",
        "0.5 * push.noise * (1.0 + kept)",
        "push.noise * (1.0 + kept)",
        "inference/sgmcmc/test_theory.py",
    ),
    "friction in BAOAB": Mutant(
        "inference/sgmcmc/splittings.py",
        "kept = 1.0 - motion.friction",
        "kept = 1.0 + motion.friction",
        "inference/sgmcmc/test_theory.py",
    ),
    "work of corrected paths": Mutant(
        "inference/sgmcmc/corrections.py", "work - 0.5 * epsilon", "work + 0.5 * epsilon", "inference/sgmcmc"
    ),
    "proposal's density in MALA": Mutant(
        "inference/mcmc/langevin.py",
        "kinetic(noise) - kinetic(back)",
        "kinetic(back) - kinetic(noise)",
        PROMISES + "mala",
    ),
    "half a step of the gradient in MALA": Mutant(
        "inference/mcmc/langevin.py", "half = 0.5 * step_size", "half = step_size", "inference/mcmc/test_langevin.py"
    ),
    "kinetic energy": Mutant(
        "inference/mcmc/integrators.py",
        "0.5 * jnp.sum(inverse_mass",
        "jnp.sum(inverse_mass",
        "inference/mcmc/test_integrators.py",
    ),
    "increments of SMC": Mutant(
        "inference/mcmc/smc.py",
        "log_weights = grows * terms",
        "log_weights = -grows * terms",
        "inference/mcmc/test_smc.py",
    ),
    "entropy in the bound": Mutant(
        "inference/vi/divergences.py",
        "return q.entropy() + log_prior(mean)",
        "return log_prior(mean) - q.entropy()",
        "inference/vi/test_bound.py",
    ),
    "curvature in the expected log prior": Mutant(
        "inference/vi/divergences.py",
        "+ 0.5 * sum(jax.tree.leaves(terms))",
        "- 0.5 * sum(jax.tree.leaves(terms))",
        "inference/vi/test_bound.py",
    ),
    "KL weights of Blundell": Mutant(
        "inference/vi/klweights.py", "jnp.exp2(-(place + 1.0))", "jnp.exp2(-place)", "inference/vi"
    ),
    "uniform KL weights": Mutant(
        "inference/vi/klweights.py",
        "jnp.ones_like(place, float) / num\n\n\nclass Geometric",
        "jnp.ones_like(place, float)\n\n\nclass Geometric",
        "inference/vi",
    ),
    "determinant in Laplace's evidence": Mutant(
        "inference/laplace/evidence.py", "- 0.5 * determinant", "+ 0.5 * determinant", "inference/laplace"
    ),
    "prior in Laplace's evidence": Mutant(
        "inference/laplace/evidence.py",
        "prior = jnp.sum(jnp.where(self.chosen, self.local.log_heights(scales), 0.0))",
        "prior = jnp.sum(self.local.log_heights(scales))",
        "inference/laplace",
    ),
    "evidence of a last layer": Mutant(
        "inference/linear/conjugate.py",
        "solved.least / noise + solved.log_det",
        "solved.least / noise - solved.log_det",
        "inference/linear",
    ),
    "rows in the evidence of unknown noise": Mutant(
        "inference/linear/conjugate.py",
        "self.shape + 0.5 * moments.num",
        "self.shape + moments.num",
        "inference/linear",
    ),
    "variance of SWAG": Mutant(
        "inference/point/swag.py", "s / (2.0 * max(count, 1))", "s / max(count, 1)", "inference/point/test_swag.py"
    ),
    "weight decay of dropout": Mutant(
        "inference/point/dropout.py",
        "(1.0 - rate) * scale * scale / (2.0 * num * given)",
        "(1.0 - rate) * scale * scale / (num * given)",
        "inference/point/test_dropout.py",
    ),
    "kept units at test time": Mutant(
        "inference/point/masks.py", "jnp.asarray(1.0 - rate)", "jnp.asarray(rate)", "inference/point/test_dropout.py"
    ),
    "epistemic variance": Mutant(
        "predict/quantities.py",
        "jnp.mean((means - mean[None]) ** 2, axis=0)",
        "jnp.mean(means - mean[None], axis=0) ** 2",
        "predict",
    ),
    "information of classes": Mutant(
        "predict/classes.py",
        "jnp.mean(jnp.sum(entr(p), axis=-1), axis=0)",
        "jnp.mean(entr(p), axis=(0, -1))",
        "predict",
    ),
    "units of a log density": Mutant(
        "predict/scaled.py",
        "self._inner.log_prob(self._rows(y))) - np",
        "self._inner.log_prob(self._rows(y))) + np",
        "predict bench/comparing/test_compare.py",
    ),
    "units of a variance": Mutant(
        "predict/scaled.py",
        "self._inner.epistemic) * self._scale[None] ** 2",
        "self._inner.epistemic) * self._scale[None]",
        "predict inference/test_standardised.py",
    ),
}


def try_one(item: tuple[str, Mutant]) -> tuple[str, dict]:
    name, mutant = item
    begun = time.time()
    with tempfile.TemporaryDirectory() as folder:
        shutil.copytree(ROOT / "src" / "tunbridge", Path(folder) / "tunbridge")
        path = Path(folder) / "tunbridge" / mutant.file
        text = path.read_text()
        if text.count(mutant.right) != 1:
            raise SystemExit(f"{mutant.file} has {text.count(mutant.right)} times {mutant.right!r}: mend the list")
        path.write_text(text.replace(mutant.right, mutant.wrong))
        files, _, chosen = mutant.tests.partition(" -k ")
        command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "-m", "not slow"]
        command += [f"tests/{file}" for file in files.split()] + (["-k", chosen] if chosen else [])
        environment = os.environ | {"PYTHONPATH": folder, "XDG_CACHE_HOME": f"{folder}/cache"}
        done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    failed = [
        line.split(" - ")[0].removeprefix("FAILED ") for line in done.stdout.splitlines() if "FAILED tests" in line
    ]
    if done.returncode not in (0, 1):
        raise SystemExit(f"{name}: pytest ended with {done.returncode}\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    found = {"file": mutant.file, "right": mutant.right, "wrong": mutant.wrong, "caught by": failed[:1]}
    print(
        f"{'caught' if failed else 'MISSED':7} {name:40} {time.time() - begun:5.0f} s  {' '.join(failed[:1])}",
        flush=True,
    )
    return name, found


def main() -> None:
    chosen = {name: MUTANTS[name] for name in sys.argv[1:] or MUTANTS}
    with ThreadPoolExecutor(2) as pool:
        found = dict(pool.map(try_one, chosen.items()))
    kept = recorded("mutants") if sys.argv[1:] else {}
    record("mutants", {**kept, **found}, show=False)
    print(f"{sum(bool(row['caught by']) for row in found.values())} of {len(found)} caught")


if __name__ == "__main__":
    main()
