"""Settings of systems: a filter, a controller, a queue, a clustering and an optimiser, and LCBench's surrogate."""

from __future__ import annotations

import functools
import os
from typing import Any

from problem import Collection, Config, flt, log, logint, pick, whole

PROBLEMS = Collection()


@functools.cache
def _photograph() -> tuple[Any, Any]:
    import numpy as np
    from sklearn.datasets import load_sample_image

    image = load_sample_image("china.jpg").mean(2)[100:164, 200:264] / 255
    draw = np.random.default_rng(3)
    noisy = image + draw.normal(scale=0.1, size=image.shape)
    hit = draw.random(image.shape) < 0.05
    return image, np.where(hit, draw.integers(0, 2, image.shape), noisy)


@PROBLEMS.add(
    "filter-photograph",
    {
        "median": whole(1, 7),
        "sigma": log(0.1, 5.0),
        "sharpen": flt(0.0, 2.0),
        "radius": log(0.3, 5.0),
        "mix": flt(0.0, 1.0),
        "edge": pick("reflect", "wrap", "constant"),
    },
)
def filter_photograph(c: Config) -> float:
    """Return the logarithm of the squared error of a noisy photograph after filters."""
    import numpy as np
    from scipy import ndimage

    clean, noisy = _photograph()
    first = ndimage.median_filter(noisy, c["median"], mode=c["edge"])
    smooth = ndimage.gaussian_filter(first, c["sigma"], mode=c["edge"])
    sharp = smooth + c["sharpen"] * (smooth - ndimage.gaussian_filter(smooth, c["radius"], mode=c["edge"]))
    return float(np.log(((c["mix"] * sharp + (1 - c["mix"]) * first - clean) ** 2).mean()))


@PROBLEMS.add(
    "controller",
    {"kp": log(1e-2, 1e2), "ki": log(1e-3, 1e2), "kd": log(1e-4, 1e1), "filter": flt(0.0, 0.95), "limit": flt(0.5, 10)},
)
def controller(c: Config) -> float:
    """Return the cost of a controller of a heavy, delayed plant with a disturbance."""
    position = speed = integral = smoothed = before = cost = 0.0
    inputs = [0.0] * 4
    for t in range(300):
        error = (1.0 if t < 180 else 0.3) - position
        integral += 0.05 * error
        smoothed = c["filter"] * smoothed + (1 - c["filter"]) * (error - before) / 0.05
        before = error
        force = c["kp"] * error + c["ki"] * integral + c["kd"] * smoothed
        force = min(max(force, -c["limit"]), c["limit"])
        inputs.append(force)
        speed += 0.05 * (inputs[-4] - 0.6 * speed - 0.4 * position - (0.5 if 90 < t < 130 else 0.0))
        position += 0.05 * speed
        cost += error * error + 2e-3 * force * force
        if abs(position) > 50:
            return 50.0
    return cost / 10


@PROBLEMS.add(
    "queue-noisy",
    {
        "servers": whole(1, 12),
        "buffer": logint(1, 256),
        "timeout": log(0.1, 100),
        "retries": whole(0, 5),
        "batch": logint(1, 32),
        "order": pick("fifo", "lifo", "shortest"),
    },
    noise=0.05,
    kinds=("noisy",),
)
def queue(c: Config) -> float:
    """Return the cost of a queue of requests by delay, loss and servers."""
    import heapq
    import random

    draw = random.Random(5)
    free = [0.0] * c["servers"]
    waiting: list[tuple[float, float, float, int]] = []
    now = lost = delay = done = 0.0
    for n in range(400):
        now += draw.expovariate(5.0)
        size = draw.lognormvariate(-0.6, 0.8)
        rank = {"fifo": now, "lifo": -now, "shortest": size}[c["order"]]
        if len(waiting) < c["buffer"]:
            heapq.heappush(waiting, (rank, now, size, 0))
        else:
            lost += 1
        while waiting and min(free) <= now and (len(waiting) >= c["batch"] or n % 8 == 0):
            at = max(heapq.heappop(free), now - 1)
            for _ in range(min(c["batch"], len(waiting))):
                rank, came, size, tries = heapq.heappop(waiting)
                if at - came > c["timeout"]:
                    if tries < c["retries"]:
                        heapq.heappush(waiting, (rank + 5, at, size, tries + 1))
                    else:
                        lost += 1
                    continue
                at += size * (0.6 + 0.4 / c["batch"])
                delay += at - came
                done += 1
            heapq.heappush(free, at)
    lost += len(waiting)
    return delay / max(done, 1) + 8 * lost / 400 + 0.12 * c["servers"]


@PROBLEMS.add(
    "mixture-flower",
    {
        "parts": whole(1, 12),
        "shape": pick("full", "tied", "diag", "spherical"),
        "reg": log(1e-7, 1.0),
        "axes": whole(1, 10),
        "steps": logint(1, 60),
    },
)
def mixture_flower(c: Config) -> float:
    """Return the negative log likelihood per column of pixels of a flower under a mixture of Gaussians."""
    import warnings

    import numpy as np
    from sklearn.datasets import load_sample_image
    from sklearn.mixture import GaussianMixture

    image = load_sample_image("flower.jpg")[::8, ::8] / 255.0
    rows = np.hstack([image[:, :-3].reshape(-1, 3), image[:, 1:-2].reshape(-1, 3), image[:, 3:].reshape(-1, 3)])
    rows = np.hstack([rows, rows[:, :1] ** 2])
    rows = rows[np.random.default_rng(4).permutation(len(rows))[:600]]
    a, b = rows[:250, : c["axes"]], rows[250:, : c["axes"]]
    model = GaussianMixture(
        c["parts"], covariance_type=c["shape"], reg_covar=c["reg"], max_iter=c["steps"], init_params="random_from_data",
        random_state=0,
    )  # fmt: skip
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return -float(model.fit(a).score(b)) / c["axes"]


@PROBLEMS.add(
    "annealing",
    {
        "start": log(1e-2, 1e3),
        "cooling": flt(0.8, 0.9999),
        "move": pick("swap", "reverse", "insert"),
        "restarts": whole(1, 6),
        "reach": logint(2, 30, "move", "reverse", "insert"),
    },
    kinds=("jagged", "conditional"),
)
def annealing(c: Config) -> float:
    """Return the length of a round trip found by simulated annealing in 1,500 moves."""
    import math
    import random

    draw = random.Random(8)
    cities = [(draw.random(), draw.random()) for _ in range(30)]
    far = [[math.dist(a, b) for b in cities] for a in cities]

    def length(path: list[int]) -> float:
        return sum(far[path[i - 1]][path[i]] for i in range(len(path)))

    best = math.inf
    for _ in range(c["restarts"]):
        path, heat = list(range(30)), c["start"]
        now = length(path)
        for _ in range(1500 // c["restarts"]):
            i = draw.randrange(30)
            j = draw.randrange(30) if c["move"] == "swap" else (i + draw.randint(1, c["reach"])) % 30
            i, j = min(i, j), max(i, j)
            other = path[:]
            if c["move"] == "swap":
                other[i], other[j] = other[j], other[i]
            elif c["move"] == "reverse":
                other[i : j + 1] = reversed(other[i : j + 1])
            else:
                other.insert(j, other.pop(i))
            then = length(other)
            if then < now or draw.random() < math.exp(max(-700.0, (now - then) / max(heat, 1e-9))):
                path, now = other, then
            heat *= c["cooling"]
        best = min(best, now)
    return best


_LCBENCH = {
    "batch_size": logint(16, 512),
    "learning_rate": log(1e-4, 1e-1),
    "momentum": flt(0.1, 0.99),
    "weight_decay": flt(1e-5, 1e-1),
    "num_layers": whole(1, 5),
    "max_units": logint(64, 1024),
    "max_dropout": flt(0.0, 1.0),
}


@functools.cache
def _surrogate() -> Any:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    return onnxruntime.InferenceSession(os.environ["LCBENCH_SURROGATE"], options)


def _lcbench(row: int, c: Config) -> float:
    import numpy as np

    values = [52.0, *(float(c[name]) for name in _LCBENCH)]
    inputs = {"x_cat": np.array([[row]], np.int32), "x_cont": np.array([values], np.float32)}
    return 1 - float(_surrogate().run(None, inputs)[0][0, 1]) / 100


# The surrogate is not part of the repository: without it, these problems are left out.
if "LCBENCH_SURROGATE" in os.environ:
    for _row in (3, 11, 19, 27):
        PROBLEMS.add(f"lcbench-{_row}", _LCBENCH)(functools.partial(_lcbench, _row))
