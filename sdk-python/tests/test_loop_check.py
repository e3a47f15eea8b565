"""Training functions whose steps do not end."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import pytest

import outbid as ob
from fake_server import FakeServer
from outbid._training.loop_check import endless_steps


def endless(trial: Any) -> None:
    for step in trial.steps():
        for _ in range(3):
            break
        if step > 3:

            def inner() -> int:
                return 1

            trial.report(step=step, loss=inner())


def enumerated(trial: Any) -> None:
    for _, step in enumerate(trial.steps()):
        trial.report(step=step, loss=1)


def breaks(trial: Any) -> None:
    for step in trial.steps():
        try:
            trial.report(step=step, loss=1)
        except KeyError:
            if step > 3:
                break


def returns(trial: Any) -> None:
    for step in trial.steps():
        while True:
            return
        trial.report(step=step, loss=1)


def raises(trial: Any) -> None:
    for step in trial.steps():
        match step:
            case 7:
                raise ob.StopTrial


def counts(trial: Any) -> None:
    for step in range(1, 10):
        trial.report(step=step, loss=1)


@pytest.mark.parametrize(
    ("train", "found"),
    [
        (endless, True),
        (enumerated, True),
        (functools.partial(endless), True),
        (breaks, False),
        (returns, False),
        (raises, False),
        (counts, False),
        (print, False),
    ],
)
def test_what_ends(train: Callable[..., Any], found: bool) -> None:
    assert endless_steps(train) == found


def submit(train: Callable[..., Any], tuner: ob.Tuner | None) -> None:
    ob.Sweep(train, {"x": ob.uniform(0, 1)}, metric="loss", mode="min", tuner=tuner, trials=3).submit()


def test_submit_warns(server: FakeServer, client: ob.Client) -> None:
    for tuner in (None, ob.Random(), ob.Grid(), ob.Sobol()):
        with pytest.warns(UserWarning, match=r"endless loops over trial\.steps\(\) without an end"):
            submit(endless, tuner)
    submit(endless, ob.Random(max_steps=3))
    submit(endless, ob.Hyperband(9))
    submit(breaks, None)
