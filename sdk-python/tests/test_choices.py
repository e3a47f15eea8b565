"""Objects as choices: they are sent as JSON or text, and trials get the original objects."""

from __future__ import annotations

import enum
import json
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import outbid as ob
from outbid._search.choices import sendable
from outbid._search.preview import as_trained
from outbid._search.space import fill_space
from outbid._training.config import parse_config
from outbid.plugin._space import Space as Known
from outbid.v1 import sweep_pb2 as pb


class Kind(enum.Enum):
    A = 1
    B = "b"


class Level(int, enum.Enum):
    LOW = 1


class Model:
    pass


def function(x: float) -> float:
    return x


OBJECTS: list[Any] = [
    (50,),
    (100, (50, 1.0)),
    Model,
    function,
    math.sqrt,
    None,
    True,
    1,
    1.0,
    np.float32(0.5),
    0.5,
    np.int64(1),
    np.bool_(True),
    Kind.A,
    Level.LOW,
    frozenset({1}),
    float("nan"),
    2**60 + 1,
    "1",
    "(50,)",
    [1, 2.0],
    b"\x00",
    {1: 2},
    Model(),
    Model(),
]


def there_and_back(space: Any) -> list[Any]:
    """Return each configuration of a space of choices like in a trial."""
    sent, objects = sendable(space)
    message = pb.SweepSpec()
    fill_space(message.space, sent)
    known, found = Known(message.space), []
    for number in range(max(d.count for d in known)):
        config = known.configuration(lambda d: d.nth(number))  # noqa: B023
        text = json.dumps(as_trained(config))
        found.append(parse_config(text))
        objects.put_back(found[-1])
    return found


def same(a: Any, b: Any) -> bool:
    return type(a) is type(b) and (a is b or repr(a) == repr(b))


def test_objects_come_back_as_they_were_given() -> None:
    configs = there_and_back({"h": ob.choice(OBJECTS), "group": {"h": ob.choice(OBJECTS)}})
    for config, value in zip(configs, OBJECTS, strict=True):
        assert same(config.h, value) and same(config.group.h, value), value


@settings(max_examples=50)
@given(
    st.lists(
        st.recursive(
            st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary(),
            lambda inner: st.lists(inner).map(tuple) | st.lists(inner) | st.frozensets(st.integers()),
            max_leaves=5,
        ),
        min_size=1,
        max_size=6,
        unique_by=repr,
    )
)
def test_any_values_come_back(values: list[Any]) -> None:
    configs = there_and_back({"h": ob.choice(values)})
    assert all(same(config.h, value) for config, value in zip(configs, values, strict=True))


def test_what_json_holds_is_sent_as_ever() -> None:
    space = {"h": ob.choice(["a", 1, None, [1, 2], {"a": 1}]), "x": 1, "g": {"c": ob.constant("k")}}
    sent, objects = sendable(space)
    assert not objects and sent == space
    sent, objects = sendable({"dropout": ob.choice([0.0, 0.5]), "lr": 1.0})
    assert sent["dropout"].values == (0.0, 0.5), "constraints and tuners see numbers"
    config = parse_config('{"dropout": 0, "lr": 1}')
    objects.put_back(config)
    assert same(config.dropout, 0.0) and same(config.lr, 1.0)


def test_groups_stay_configurations() -> None:
    (config,) = there_and_back({"opt": ob.choice([{"lr": 1.0, "inner": {"n": (1,)}}])})
    assert config.opt.lr == 1.0 and config.opt.inner.n == (1,)


def test_conditions_and_points_name_the_objects() -> None:
    space = {"model": ob.choice([Model, function]), "depth": ob.when(ob.choice([1, 2]), "model", in_=[Model])}
    sweep = ob.Sweep(
        lambda trial: None, space, metric="loss", mode="min", points=[{"model": function}, {"model": Model}]
    )
    spec = sweep._spec
    assert [value.string_value for value in getattr(spec.space["depth"].when, "in")] == ["Model"]
    assert [dict(point) for point in spec.tuner.points] == [{"model": "function"}, {"model": "Model"}]


@pytest.mark.parametrize("value", [Model, float("nan"), 2**60 + 1, b"x"])
def test_programs_take_json_alone(value: Any) -> None:
    with pytest.raises((TypeError, ValueError), match=r"h: choice: "):
        ob.Sweep(None, {"h": ob.choice([value])}, metric="loss", mode="min", program="true")
