"""Steps per second of SGHMC on ResNet-20 and 32 x 32 images: the library against a hand-written scan; for a GPU.

    python benchmarks/cifar10_speed.py [--batches 500 1000] [--chains 1 4] [--seconds S] [--only NAME ...] [--profile]
        [--out FILE] [--small]

Rows: "bare" and "bare fused" are one `lax.scan` of m <- mu m + sqrt(lr) g + sqrt(2 (1 - mu)) xi, w <- w + sqrt(lr) m
with the network in bfloat16, its layers written for XLA or as kernels that keep an image on the chip
(`ResNet20(fused=True)`); "fit" and "fit fused" are `tb.SGHMC.fit` of the same update. Images are random: 20,000 of
them. Rates are measured over the last seconds, after compilation, which is timed separately. Operations count the
convolutions, at three times those of a forward pass; the share is relative to the 790 TFLOP/s that a large product of
bfloat16 matrices reaches. --profile lists the kernels that take most of the time of a step of each row, and how long
the device is idle.
"""

import argparse
import collections
import glob
import json
import tempfile
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from record import RESULTS, record

import tunbridge as tb

PRIOR_VARIANCE, STEP_SIZE, MOMENTUM, PEAK = 0.2, 3e-7, 0.9, 790e12


def images(small: bool) -> tb.Data:
    num, size = (200, 16) if small else (20_000, 32)
    rng = np.random.default_rng(0)
    return tb.Data(rng.standard_normal((num, size, size, 3), np.float32), rng.integers(0, 10, num))


def network(fused: bool, small: bool):
    net = tb.networks.ResNet20(blocks=1 if small else 3, outputs=10, fused=fused)
    return tb.networks.Cast(net)


def operations(net, size: int) -> float:
    """Operations of the convolutions and the last layer, for the gradient of one image."""
    weights = jax.eval_shape(net.init, jax.random.key(0), jax.ShapeDtypeStruct((1, size, size, 3), jnp.float32))
    outputs = jax.eval_shape(net.network.apply, weights, jax.ShapeDtypeStruct((1, size, size, 3), jnp.float32))
    total, pixels = outputs.shape[-1] * weights["linear"]["weight"].shape[0], size * size
    total += pixels * np.prod(weights["conv"]["weight"].shape)
    for number, stage in enumerate(weights["stages"]):
        here = pixels / 4**number
        total += sum(here * np.prod(leaf.shape) for leaf in jax.tree.leaves(stage) if len(leaf.shape) == 4)
    return 3 * 2 * float(total)


def bare(net, data: tb.Data, batch: int, chains: int):
    """A function of (carry, rows) that takes one step for each row of `rows`, and the initial carry."""
    x, y = jnp.asarray(data.x), jnp.asarray(data.y)
    first = [net.init(jax.random.key(i), x[:2]) for i in range(chains)]
    unravel = ravel_pytree(first[0])[1]

    def log_density(w, rows):
        logits = net.apply(unravel(w), x[rows])
        fit = jnp.sum(jnp.take_along_axis(jax.nn.log_softmax(logits), y[rows][:, None], 1))
        return data.num / batch * fit - jnp.sum(w * w) / (2 * PRIOR_VARIANCE)

    def step(carry, turn):
        w, m, key = carry
        t, rows = turn
        noise = jax.random.normal(jax.random.fold_in(key, t), w.shape)
        m = MOMENTUM * m + STEP_SIZE**0.5 * jax.grad(log_density)(w, rows) + (2 * (1 - MOMENTUM)) ** 0.5 * noise
        return (w + STEP_SIZE**0.5 * m, m, key), None

    def run(carry, rows):
        return jax.lax.scan(step, carry, (jnp.arange(len(rows)), rows))[0]

    flat = jnp.stack([ravel_pytree(w)[0] for w in first])
    carry = flat, jnp.zeros_like(flat), jax.random.split(jax.random.key(1), chains)
    if chains == 1:
        return jax.jit(run), jax.tree.map(lambda leaf: leaf[0], carry)
    return jax.jit(jax.vmap(run, in_axes=(0, 0))), carry


def rows_of(data: tb.Data, batch: int, chains: int, steps: int) -> jnp.ndarray:
    rows = np.random.default_rng(1).integers(0, data.num, (chains, steps, batch), np.int32)
    return jnp.asarray(rows if chains > 1 else rows[0])


def time_bare(net, data, batch, chains, seconds, folder):
    run, carry = bare(net, data, batch, chains)
    steps = 50
    rows = rows_of(data, batch, chains, steps)
    began = time.perf_counter()
    compiled = run.lower(carry, rows).compile()
    compilation = time.perf_counter() - began
    carry = jax.block_until_ready(compiled(carry, rows))
    began, done = time.perf_counter(), 0
    while time.perf_counter() - began < seconds:
        carry = jax.block_until_ready(compiled(carry, rows))
        done += steps
    elapsed = time.perf_counter() - began
    if folder:
        with jax.profiler.trace(folder):
            jax.block_until_ready(compiled(carry, rows))
    return done / elapsed, compilation, steps


def time_fit(net, data, batch, chains, seconds, folder):
    model = tb.Model(net, tb.priors.Normal(PRIOR_VARIANCE**0.5), tb.likelihoods.Categorical())
    run = tb.Run(chains=chains, warmup=0, draws=10**5, thin=100, batch_size=batch, keep=np.asarray(data.x[:100]))
    events, began = [], time.perf_counter()

    def watch(event):
        events.append((time.perf_counter(), event.step))
        begun = next((when for when, step in events if step > 1), None)
        if folder and len(events) == 4:
            jax.profiler.start_trace(folder)
        if folder and len(events) == 5:
            jax.profiler.stop_trace()
        return begun is not None and events[-1][0] - begun > seconds + (10 if folder else 0)

    tb.SGHMC(STEP_SIZE, friction=1 - MOMENTUM, run=run).fit(
        model, data, key=jax.random.key(0), progress=False, callbacks=[watch]
    )
    late = events[len(events) // 2 :]
    rate = (late[-1][1] - late[0][1]) / (late[-1][0] - late[0][0]) if len(late) > 1 else float("nan")
    return rate, events[0][0] - began, (events[4][1] - events[3][1]) if folder and len(events) > 4 else 0


def kernels(folder: str, steps: int) -> dict:
    """Microseconds per step: of the longest kernels, of all kernels together, and idle."""
    path = glob.glob(f"{folder}/**/*.xplane.pb", recursive=True)[-1]
    spent, spans = collections.Counter(), []
    counts = collections.Counter()
    for plane in jax.profiler.ProfileData.from_file(path).planes:
        if "/device:GPU" not in plane.name:
            continue
        for line in plane.lines:
            if not line.name.startswith("Stream"):
                continue
            for event in line.events:
                spent[event.name] += event.duration_ns
                counts[event.name] += 1
                spans.append((event.start_ns, event.start_ns + event.duration_ns))
    spans.sort()
    busy, end = 0.0, -1.0
    for begin, stop in spans:
        busy += max(0.0, stop - max(begin, end))
        end = max(end, stop)
    whole = spans[-1][1] - spans[0][0] if spans else 0.0
    return {
        "microseconds": whole / steps / 1e3,
        "busy": busy / steps / 1e3,
        "kernels_a_step": len(spans) / steps,
        "longest": {n[:60]: [round(t / steps / 1e3, 1), counts[n] / steps] for n, t in spent.most_common(40)},
    }


NAMES = {
    "bare": (time_bare, False),
    "bare fused": (time_bare, True),
    "fit": (time_fit, False),
    "fit fused": (time_fit, True),
}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batches", type=int, nargs="+", default=[500, 1000])
    parser.add_argument("--chains", type=int, nargs="+", default=[1])
    parser.add_argument("--seconds", type=float, default=4.0)
    parser.add_argument("--only", nargs="+", choices=NAMES, default=list(NAMES))
    parser.add_argument("--profile", action="store_true")
    parser.add_argument("--small", action="store_true", help="use a few small images, for a trial on a CPU")
    parser.add_argument("--out", type=Path, default=RESULTS / "cifar10_speed.json")
    args = parser.parse_args()
    if args.small and args.out.resolve().parent == RESULTS.resolve():
        parser.error("--small needs --out FILE")
    data = images(args.small)
    found = json.loads(args.out.read_text())["rows"] if args.out.exists() else []
    for batch in args.batches:
        for chains in args.chains:
            for name in args.only:
                timed, fused = NAMES[name]
                net = network(fused, args.small)
                folder = tempfile.mkdtemp() if args.profile else None
                try:
                    rate, compilation, steps = timed(net, data, batch, chains, args.seconds, folder)
                except Exception as error:  # a row that fails is reported, the others go on
                    print(name, batch, chains, "failed:", repr(error)[:1500], flush=True)
                    continue
                work = rate * chains * batch * operations(net, data.x.shape[1])
                row = {"name": name, "batch": batch, "chains": chains, "steps_per_second": rate}
                row |= {"compilation_seconds": compilation, "tflops": work / 1e12, "share_of_peak": work / PEAK}
                row |= {"device": jax.devices()[0].device_kind}
                print({k: round(v, 4) if isinstance(v, float) else v for k, v in row.items()}, flush=True)
                if folder and steps:
                    print(json.dumps(kernels(folder, steps), indent=0), flush=True)
                same = ("name", "batch", "chains", "device")
                found = [old for old in found if any(old[k] != row[k] for k in same)] + [row]
    record(str(args.out.resolve().with_suffix("")), {"rows": found}, command="cifar10_speed.py", show=False)


if __name__ == "__main__":
    main()
