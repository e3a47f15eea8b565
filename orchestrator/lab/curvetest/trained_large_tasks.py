"""The last twelve tasks of trained.py, with 600 configurations each, in two classes."""

from __future__ import annotations

from collections.abc import Callable

from perceptrons import Data, How
from trained_large_data import (
    astronaut,
    churn,
    deliveries,
    diamonds,
    flights,
    hotels,
    houses,
    personalities,
    pronunciations,
    species,
    windows,
    wrong_mnist,
)
from trained_space import Draw, Task, choice, log, uniform, whole


def large(name: str, data: Callable[[], Data], network: How | None, space: dict[str, Draw], batch: float = 32) -> Task:
    """Return a task of 600 configurations."""
    return Task(name, data, network, space, {} if "batch_size" in space else {"batch_size": batch}, 600)


# The classes were chosen before any tuner was run on the tasks or the order of their curves was examined.

# Ordinary tasks: constant rates, and boosting with usual steps.
ORDINARY = [
    large(
        "diamonds-constant",
        diamonds,
        How((48,)),
        {
            "learning_rate": log(1e-5, 1e-1),
            "momentum": uniform(0.5, 0.99),
            "weight_decay": log(1e-4, 1),
            "width": whole(8, 48),
            "batch_size": choice(32, 64, 128),
        },
    ),
    large(
        "mnist-convolution",
        windows,
        How((32,), metric="accuracy", filters=8),
        {
            "learning_rate": log(1e-5, 1e-1),
            "momentum": uniform(0.5, 0.99),
            "weight_decay": log(1e-4, 1),
            "dropout": uniform(0, 0.5),
        },
    ),
    large(
        "personalities-autoencoder",
        personalities,
        How((32, 5, 32)),
        {
            "learning_rate": log(1e-5, 1e-1),
            "momentum": uniform(0.5, 0.99),
            "weight_decay": log(1e-4, 1),
            "noise": uniform(0, 0.5),
            "width": whole(4, 32),
        },
    ),
    large(
        "pronunciations-constant",
        pronunciations,
        How((64,)),
        {
            "learning_rate": log(1e-4, 1e-1),
            "momentum": uniform(0.5, 0.99),
            "beta2": uniform(0.9, 0.999),
            "weight_decay": log(1e-4, 1),
        },
        batch=64,
    ),
    large(
        "species-constant",
        species,
        How((48, 24), optimiser="sgd"),
        {
            "learning_rate": log(1e-3, 1),
            "momentum": uniform(0, 0.99),
            "weight_decay": log(1e-6, 1e-2),
            "dropout": uniform(0, 0.5),
            "smoothing": uniform(0, 0.2),
        },
    ),
    large(
        "hotels-boosting",
        hotels,
        None,
        {
            "learning_rate": log(0.02, 0.5),
            "max_depth": whole(2, 8),
            "min_child_weight": log(1, 50),
            "subsample": uniform(0.4, 1),
            "colsample_bytree": uniform(0.3, 1),
            "reg_lambda": log(0.01, 100),
        },
    ),
]

# Tasks whose early ranks may mislead: the rate is constant until it falls, linearly or in steps, and rises for up to
# seven tenths of training; labels are wrong, so that large networks overfit late; regularisation is strong; steps are
# small.
MISLEADING = [
    large(
        "flights-hold",
        flights,
        How((48, 48), schedule="hold"),
        {
            "learning_rate": log(3e-4, 1e-1),
            "fall": uniform(0.05, 0.7),
            "momentum": uniform(0.5, 0.99),
            "weight_decay": log(1e-4, 3),
            "dropout": uniform(0, 0.5),
        },
    ),
    large(
        "mnist-wrong-labels",
        wrong_mnist,
        How((96,), schedule="cosine"),
        {
            "learning_rate": log(1e-4, 3e-2),
            "warmup": uniform(0, 0.3),
            "weight_decay": log(1e-3, 10),
            "width": whole(16, 96),
            "smoothing": uniform(0, 0.3),
        },
    ),
    large(
        "deliveries-one-cycle",
        deliveries,
        How((48, 48), optimiser="sgd", schedule="linear"),
        {
            "learning_rate": log(3e-3, 1),
            "warmup": uniform(0.1, 0.7),
            "momentum": uniform(0.5, 0.99),
            "weight_decay": log(1e-6, 1e-2),
            "dropout": uniform(0, 0.3),
        },
    ),
    large(
        "houses-regularised",
        houses,
        How((64, 64), schedule="linear"),
        {
            "learning_rate": log(3e-4, 3e-2),
            "weight_decay": log(1e-2, 10),
            "dropout": uniform(0.2, 0.8),
            "noise": uniform(0, 1),
            "width": whole(16, 64),
        },
    ),
    large(
        "astronaut-steps",
        astronaut,
        How((48, 48), optimiser="sgd", schedule="steps"),
        {
            "learning_rate": log(1e-2, 1),
            "momentum": uniform(0.5, 0.99),
            "weight_decay": log(1e-7, 1e-3),
            "first_drop": uniform(0.3, 0.9),
            "drop": log(0.03, 0.5),
        },
    ),
    large(
        "churn-boosting",
        churn,
        None,
        {
            "learning_rate": log(0.001, 0.3),
            "max_depth": whole(2, 12),
            "min_child_weight": log(1, 100),
            "subsample": uniform(0.3, 1),
            "colsample_bytree": uniform(0.3, 1),
            "reg_lambda": log(0.01, 100),
        },
    ),
]
