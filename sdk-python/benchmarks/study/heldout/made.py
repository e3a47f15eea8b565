"""Made functions that differ from those of development: noisy, mixed, conditional, jagged, wide."""

from __future__ import annotations

import math

from problem import Collection, Config, flt, log, logint, pick, whole

PROBLEMS = Collection()


@PROBLEMS.add("camel-noisy", {"x": flt(-3, 3), "y": flt(-2, 2)}, noise=0.3, kinds=("noisy",))
def camel(c: Config) -> float:
    """Return the six-hump camel function, on a logarithmic scale above 1."""
    x, y = c["x"], c["y"]
    value = (4 - 2.1 * x * x + x**4 / 3) * x * x + x * y + (-4 + 4 * y * y) * y * y
    return value if value < 1 else 1 + math.log(value)


@PROBLEMS.add("levy-6", {f"x{i}": flt(-10, 10) for i in range(6)})
def levy(c: Config) -> float:
    """Return Levy's function of six variables."""
    w = [1 + (c[f"x{i}"] - 1 - 0.7 * i) / 4 for i in range(6)]
    value = math.sin(math.pi * w[0]) ** 2
    value += sum((v - 1) ** 2 * (1 + 10 * math.sin(math.pi * v + 1) ** 2) for v in w[:-1])
    return value + (w[-1] - 1) ** 2 * (1 + math.sin(2 * math.pi * w[-1]) ** 2)


@PROBLEMS.add(
    "griewank-whole",
    {f"n{i}": whole(-40, 60) for i in range(3)} | {"s": logint(1, 1000), "t": pick("p", "q", "r", "s", "t", "u")},
)
def griewank(c: Config) -> float:
    """Return Griewank's function of whole numbers and a choice."""
    x = [c["n0"] - 7.0, c["n1"] + 11.0, c["n2"] - 30.0, 8 * math.log2(c["s"] / 50), 6.0 * "pqrstu".index(c["t"]) - 12]
    return sum(v * v for v in x) / 400 - math.prod(math.cos(v / math.sqrt(i + 1)) for i, v in enumerate(x)) + 1


@PROBLEMS.add("terraces", {"a": flt(0, 1), "b": log(1e-3, 1e3), "c": whole(0, 50), "d": flt(-5, 5)}, kinds=("jagged",))
def terraces(c: Config) -> float:
    """Return a valley in terraces of unequal height."""
    u = c["a"] - 0.31, math.log10(c["b"]) / 6 - 0.2, c["c"] / 50 - 0.66, c["d"] / 10 + 0.12
    slope = abs(u[0] + 0.5 * u[1]) + abs(u[1]) + 0.7 * abs(u[2]) + 0.6 * abs(u[3] - 0.3 * u[0])
    level = math.floor(12 * math.sqrt(slope))
    return level + 0.6 * ((7 * level + math.floor(c["a"] * 23)) % 3)


@PROBLEMS.add("needles", {"x": flt(0, 1), "y": flt(0, 1), "z": flt(0, 1)}, kinds=("jagged",))
def needles(c: Config) -> float:
    """Return a wide bowl with a deeper, narrow one next to it and fine waves."""
    at = c["x"], c["y"], c["z"]
    wide = sum((v - w) ** 2 for v, w in zip(at, (0.7, 0.3, 0.55), strict=True))
    deep = sum((v - w) ** 2 for v, w in zip(at, (0.2, 0.75, 0.25), strict=True))
    waves = 0.01 * math.sin(60 * c["x"]) * math.sin(47 * c["y"])
    return min(wide, 8 * deep - 0.1) + waves


@PROBLEMS.add("styblinski-12", {f"x{i}": flt(-5, 5) for i in range(12)})
def styblinski(c: Config) -> float:
    """Return Styblinski's and Tang's function of twelve variables with falling weights."""
    return sum((x**4 - 16 * x * x + 5 * x) / (2 + i) for i, x in enumerate(c[f"x{i}"] for i in range(12)))


@PROBLEMS.add(
    "branches",
    {
        "way": pick("grid", "beam", "tree", "walk"),
        "step": log(1e-4, 1e1, "way", "grid"),
        "side": whole(1, 30, "way", "grid"),
        "beam": logint(1, 512, "way", "beam"),
        "heat": log(1e-2, 1e2, "way", "beam", "walk"),
        "depth": whole(1, 20, "way", "tree"),
        "prune": flt(0, 1, "way", "tree"),
        "bias": flt(-1, 1, "way", "walk"),
        "cache": logint(1, 4096),
    },
    noise=0.02,
    kinds=("conditional", "noisy"),
)
def branches(c: Config) -> float:
    """Return the cost of one of four searches, which have different parameters."""
    cost = 0.1 * abs(math.log2(c["cache"]) - 8) / 8
    if c["way"] == "grid":
        return cost + 0.5 + 0.1 * (math.log10(c["step"]) + 1) ** 2 + 0.01 * abs(c["side"] - 12)
    if c["way"] == "beam":
        return (
            cost
            + 0.25
            + 0.03 * (math.log2(c["beam"]) - 6 + math.log10(c["heat"])) ** 2
            + 0.1 * abs(math.log10(c["heat"]) - 0.5)
        )
    if c["way"] == "tree":
        return cost + 0.2 + 0.02 * abs(c["depth"] - 9 - 4 * c["prune"]) + 0.8 * (c["prune"] - 0.35) ** 2
    return (
        cost
        + 0.35
        + 0.2 * (c["bias"] - 0.6 * math.tanh(math.log10(c["heat"]))) ** 2
        + 0.05 * math.log10(c["heat"]) ** 2
    )


@PROBLEMS.add(
    "memory-limit",
    {"batch": logint(1, 2048), "width": logint(16, 8192), "rate": log(1e-6, 1.0), "half": pick(True, False)},
    kinds=("failing",),
)
def memory_limit(c: Config) -> float:
    """Return the time to a quality; a trial fails beyond the limit of memory, and where training diverges (NaN)."""
    rate = math.log10(c["rate"] * math.sqrt(64 / c["batch"]))
    if c["batch"] * c["width"] * (1 if c["half"] else 2) > 500_000 or rate > -0.8:
        return math.nan
    quality = 1 / math.log2(c["width"]) + 0.06 * (rate + 2.2) ** 2 + (0.015 if c["half"] else 0.0)
    return quality + 0.2 / math.log2(c["batch"] + 2)
