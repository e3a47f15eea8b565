"""Made functions: noisy, mixed, conditional, jagged, and with parameters that do not matter."""

from __future__ import annotations

import math

from problem import Collection, Config, flt, log, logint, pick, whole

PROBLEMS = Collection()


@PROBLEMS.add("branin-noisy", {"x": flt(-5, 10), "y": flt(0, 15)}, noise=3.0, kinds=("noisy",))
def branin(c: Config) -> float:
    """Return Branin's function."""
    x, y = c["x"], c["y"]
    bend = y - 5.1 / (4 * math.pi**2) * x * x + 5 / math.pi * x - 6
    return bend * bend + 10 * (1 - 1 / (8 * math.pi)) * math.cos(x) + 10


@PROBLEMS.add("rosenbrock-5", {f"x{i}": flt(-2, 2) for i in range(5)})
def rosenbrock(c: Config) -> float:
    """Return the logarithm of Rosenbrock's function of five variables."""
    x = [c[f"x{i}"] for i in range(5)]
    return math.log1p(sum(100 * (x[i + 1] - x[i] ** 2) ** 2 + (1 - x[i]) ** 2 for i in range(4)))


@PROBLEMS.add(
    "ackley-mixed",
    {"x": flt(-5, 5), "y": flt(-5, 5), "n": whole(-5, 5), "m": whole(-5, 5), "kind": pick("a", "b", "c", "d")},
)
def ackley(c: Config) -> float:
    """Return Ackley's function of two numbers, two whole numbers and a choice."""
    x = [c["x"] - 0.7, c["y"] + 1.3, c["n"] - 3.0, c["m"] + 2.0, "abcd".index(c["kind"]) - 2.0]
    mean, waves = sum(v * v for v in x) / 5, sum(math.cos(2 * math.pi * v) for v in x) / 5
    return -20 * math.exp(-0.2 * math.sqrt(mean)) - math.exp(waves) + 20 + math.e


_TRAINING = {
    "lr": log(1e-5, 1.0),
    "batch": logint(8, 512),
    "width": logint(4, 512),
    "decay": log(1e-7, 1e-1),
    "dropout": flt(0.0, 0.6),
    "activation": pick("relu", "tanh", "gelu", "elu"),
}


@PROBLEMS.add("training-noisy", _TRAINING, noise=0.03, kinds=("noisy",))
def training(c: Config) -> float:
    """Return a loss with a valley of learning rate and batch that ends in divergence."""
    rate = math.log10(c["lr"]) - 0.15 * math.log2(c["batch"] / 32) + 2.4
    diverged = 1.5 / (1 + math.exp(-12 * (rate - 0.9)))
    shift = {"relu": 0.0, "tanh": 0.1, "gelu": -0.02, "elu": 0.03}[c["activation"]]
    width = 0.8 / math.log2(c["width"] + 1)
    decay = 0.04 * (math.log10(c["decay"]) + 3.5) ** 2 * (0.4 + c["width"] / 512)
    return 0.2 + 0.15 * rate * rate + diverged + shift + width + decay + 0.15 * abs(c["dropout"] - 0.15)


@PROBLEMS.add(
    "layers",
    {
        "depth": pick(1, 2, 3, 4),
        "w0": logint(8, 512),
        "w1": logint(8, 512, "depth", 2, 3, 4),
        "w2": logint(8, 512, "depth", 3, 4),
        "w3": logint(8, 512, "depth", 4),
        "optimizer": pick("sgd", "adam"),
        "momentum": flt(0.0, 0.99, "optimizer", "sgd"),
        "beta": flt(0.8, 0.999, "optimizer", "adam"),
        "lr": log(1e-5, 1e0),
    },
    kinds=("conditional",),
)
def layers(c: Config) -> float:
    """Return the loss of a network whose widths depend on its depth, and whose momentum on its optimiser."""
    best = {1: (60,), 2: (110, 30), 3: (150, 90, 20), 4: (200, 120, 60, 16)}[c["depth"]]
    loss = {1: 0.45, 2: 0.22, 3: 0.1, 4: 0.14}[c["depth"]]
    loss += sum(0.1 * math.log2(c[f"w{i}"] / w) ** 2 / (1 + i) for i, w in enumerate(best))
    if c["optimizer"] == "sgd":
        return loss + 0.05 + 0.3 * (math.log10(c["lr"] / (1.01 - c["momentum"])) + 0.3 * c["depth"]) ** 2
    return loss + 0.25 * (math.log10(c["lr"]) + 2.2 + 0.2 * c["depth"]) ** 2 + abs(c["beta"] - 0.93)


@PROBLEMS.add("stairs", {f"x{i}": flt(0, 1) for i in range(4)}, kinds=("jagged",))
def stairs(c: Config) -> float:
    """Return a bowl in steps, with lower ledges across it."""
    target, value = (0.23, 0.61, 0.82, 0.4), 0.0
    for i, t in enumerate(target):
        d = abs(c[f"x{i}"] - t)
        value += math.floor(9 * d) / 9 + 0.05 * (math.floor(c[f"x{i}"] * 37) % 3)
    return value


@PROBLEMS.add("michalewicz-5", {f"x{i}": flt(0, math.pi) for i in range(5)}, kinds=("jagged",))
def michalewicz(c: Config) -> float:
    """Return Michalewicz's function: steep valleys with flat land between them."""
    return -sum(math.sin(c[f"x{i}"]) * math.sin((i + 1) * c[f"x{i}"] ** 2 / math.pi) ** 10 for i in range(5))


@PROBLEMS.add("few-of-sixteen", {f"x{i}": flt(0, 1) for i in range(14)} | {"a": pick("u", "v", "w"), "b": pick(0, 1)})
def few_of_sixteen(c: Config) -> float:
    """Return a function of sixteen parameters; four matter."""
    u, v = c["x3"] - 0.35, c["x9"] - 0.7
    shift = {"u": 0.2, "v": 0.0, "w": 0.5}[c["a"]]
    return u * u + 2 * (v - u) ** 2 + shift * (0.2 + c["x5"]) + 0.02 * sum(c[f"x{i}"] for i in range(14)) / 14


@PROBLEMS.add("failing-cliff", {"size": logint(1, 4096), "lr": log(1e-6, 10), "x": flt(-1, 1)}, kinds=("failing",))
def failing_cliff(c: Config) -> float:
    """Return a loss that is best just below the limits of memory and of stability; beyond, a trial fails (NaN)."""
    if c["size"] * (1.5 + c["x"]) > 1500 or c["lr"] > 0.3 / (1 + 0.2 * abs(c["x"])):
        return math.nan
    return 1 / math.log2(c["size"] + 2) + 0.08 * (math.log10(c["lr"]) + 0.8) ** 2 + 0.1 * (c["x"] - 0.4) ** 2


@PROBLEMS.add("choices-8", {f"c{i}": pick(*"abcde") for i in range(8)})
def choices(c: Config) -> float:
    """Return a function of eight choices with effects of pairs."""
    value = 0.0
    for i in range(8):
        k = "abcde".index(c[f"c{i}"])
        value += ((k * (2 * i + 3) + i) % 5) / (1 + 0.4 * i)
        value += 0.5 * ((k + "abcde".index(c[f"c{(i + 1) % 8}"])) % 3 == 0)
    return value
