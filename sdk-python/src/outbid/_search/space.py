"""Search spaces: the values that configurations are drawn from.

A space is a dict. Its values are parameters made by the functions here, plain values (constants), or dicts (groups,
which become dicts in the configuration):

    space = {
        "lr": uniform(0.001, 0.1),
        "optimizer": {
            "name": choice(["sgd", "adam"]),
            "momentum": when(uniform(0, 1), "optimizer.name", in_=["sgd"]),
        },
    }
"""

from __future__ import annotations

import dataclasses
import math
import operator
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, SupportsFloat, SupportsIndex, TypeAlias

from google.protobuf import struct_pb2

from outbid._core.validation import quoted
from outbid._training.config import Config
from outbid.v1 import sweep_pb2 as pb

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*")
_INT64 = 1 << 63

Space: TypeAlias = Mapping[str, Any]
"""A search space: parameter name to parameter, plain value or nested space."""


@dataclass(frozen=True)
class Condition:
    """A parameter with it is part of a configuration only if `param` (a dotted path) has one of `values`."""

    param: str
    values: tuple[Any, ...]


@dataclass(frozen=True)
class Parameter:
    """One dimension of a search space. Use `uniform`, `choice` and so on to make one."""

    condition: Condition | None = dataclasses.field(default=None, kw_only=True)

    def to_proto(self, path: str = "") -> pb.Parameter:
        """Return the parameter as the API's message; `path` is its dotted path, for error messages."""
        message = pb.Parameter()
        self._fill(message, path)
        if self.condition is not None:
            message.when.param = self.condition.param
            getattr(message.when, "in").extend(to_value(v, f"{path}: in_") for v in self.condition.values)
        return message

    def _fill(self, message: pb.Parameter, path: str) -> None:
        raise NotImplementedError


@dataclass(frozen=True)
class FloatParameter(Parameter):
    """A real number, `low <= x <= high`."""

    low: float
    high: float
    log: bool = False
    quantum: float = 0.0

    def _fill(self, message: pb.Parameter, path: str) -> None:
        message.float.CopyFrom(pb.FloatRange(low=self.low, high=self.high, log=self.log, quantum=self.quantum))


@dataclass(frozen=True)
class IntParameter(Parameter):
    """A whole number, `low <= x <= high`, both included."""

    low: int
    high: int
    log: bool = False
    quantum: int = 1

    def _fill(self, message: pb.Parameter, path: str) -> None:
        quantum = 0 if self.quantum == 1 else self.quantum
        message.int.CopyFrom(pb.IntRange(low=self.low, high=self.high, log=self.log, quantum=quantum))


@dataclass(frozen=True)
class NormalParameter(Parameter):
    """A normally distributed real number, rounded to a multiple of `quantum` unless that is 0."""

    mean: float
    sd: float
    quantum: float = 0.0

    def _fill(self, message: pb.Parameter, path: str) -> None:
        message.normal.CopyFrom(pb.Normal(mean=self.mean, sd=self.sd, quantum=self.quantum))


@dataclass(frozen=True)
class SampleFrom:
    """A value computed from the other parameters. Made by `sample_from`."""

    function: Callable[[Config], Any]


@dataclass(frozen=True)
class ChoiceParameter(Parameter):
    """One of a list of values."""

    values: tuple[Any, ...]

    def _fill(self, message: pb.Parameter, path: str) -> None:
        message.choice.values.extend(to_value(v, f"{path}: choice") for v in self.values)


@dataclass(frozen=True)
class ConstantParameter(Parameter):
    """Always the same value."""

    value: Any

    def _fill(self, message: pb.Parameter, path: str) -> None:
        message.constant.CopyFrom(to_value(self.value, path))


@dataclass(frozen=True)
class GroupParameter(Parameter):
    """A nested space; only needed for a condition on a whole group."""

    space: Space

    def _fill(self, message: pb.Parameter, path: str) -> None:
        message.group.SetInParent()
        fill_space(message.group.space, self.space, path)


def uniform(low: SupportsFloat, high: SupportsFloat) -> FloatParameter:
    """Return a real number, uniform on `low <= x <= high`."""
    return _float("uniform", low, high)


def loguniform(low: SupportsFloat, high: SupportsFloat) -> FloatParameter:
    """Return a real number whose logarithm is uniform on `low <= x <= high`; `low` must be above 0."""
    return _float("loguniform", low, high, log=True)


def quniform(low: SupportsFloat, high: SupportsFloat, q: SupportsFloat) -> FloatParameter:
    """Return a real number in steps of `q`: one of `low`, `low + q`, ... up to `high`."""
    return _float("quniform", low, high, quantum=q)


def qloguniform(low: SupportsFloat, high: SupportsFloat, q: SupportsFloat) -> FloatParameter:
    """Return one of `low`, `low + q`, ... up to `high`, log-uniform; `low` must be above 0."""
    return _float("qloguniform", low, high, log=True, quantum=q)


def normal(mean: SupportsFloat, sd: SupportsFloat, q: SupportsFloat = 0.0) -> NormalParameter:
    """Return a normally distributed real number, in steps of `q` unless that is 0.

    It has no bounds. `Grid` tries evenly spaced quantiles; Optuna's samplers draw within three `sd` of the mean.
    """
    center, wide, step = _real("normal", "mean", mean), _real("normal", "sd", sd), _real("normal", "q", q)
    if wide <= 0:
        raise ValueError(f"normal: sd must be above 0, got {sd!r}")
    if step < 0:
        raise ValueError(f"normal: q must not be below 0, got {q!r}")
    return NormalParameter(center, wide, step)


def sample_from(function: Callable[[Config], Any]) -> SampleFrom:
    """Return a value that `function` computes: `ob.sample_from(lambda config: 2 * config.width)`.

    The function gets the configuration. It is called where the trial is trained, before the training function, and
    again when the trial resumes. Functions are called in the space's order and see the values of earlier ones. `random`
    and numpy's global generator are seeded by the trial, so the same trial always has the same value. Tuners do not see
    the value; results show it.
    """
    if not callable(function):
        raise TypeError(f"sample_from: expected a function of the configuration, got {function!r:.80}")
    return SampleFrom(function)


def integer(low: SupportsIndex, high: SupportsIndex, *, log: bool = False, step: SupportsIndex = 1) -> IntParameter:
    """Return a whole number on `low <= x <= high`, **both ends included**, in steps of `step`.

    With `log=True` it is log-uniform, and `low` must be above 0. `randint` has the convention of Ray and numpy, which
    excludes the upper end.
    """
    return _int("integer", low, high, log=log, quantum=step)


def randint(low: SupportsIndex, high: SupportsIndex) -> IntParameter:
    """Return a whole number on `low <= x < high`: the upper end is **not** included, as in Ray and numpy."""
    return _int("randint", low, _below(high), upper="high - 1")


def lograndint(low: SupportsIndex, high: SupportsIndex) -> IntParameter:
    """Return a log-uniform whole number on `low <= x < high`: the upper end is **not** included, as in Ray."""
    return _int("lograndint", low, _below(high), log=True, upper="high - 1")


def qrandint(low: SupportsIndex, high: SupportsIndex, q: SupportsIndex = 1) -> IntParameter:
    """Return one of `low`, `low + q`, ... up to `high`, which **is** included, as in Ray."""
    return _int("qrandint", low, high, quantum=q)


def qlograndint(low: SupportsIndex, high: SupportsIndex, q: SupportsIndex = 1) -> IntParameter:
    """Return one of `low`, `low + q`, ... up to `high` (included, as in Ray), log-uniform."""
    return _int("qlograndint", low, high, log=True, quantum=q)


def choice(values: Sequence[Any]) -> ChoiceParameter:
    """Return one of `values`: numbers, strings, booleans, None, or any objects that can be pickled.

    A training function gets the objects as they were given: tuples, classes, functions, numpy scalars. So does `config`
    of a result in this program. Elsewhere, such as in `outbid show`, an object that JSON cannot represent is shown as
    text. Programs take JSON only, in which a float without a fraction, such as 1.0, is the int 1.
    """
    if isinstance(values, (str, bytes, Mapping)) or not hasattr(values, "__iter__"):
        raise TypeError(f"choice: values must be a list, got {values!r}")
    items = tuple(values)
    if not items:
        raise ValueError("choice: values: is empty; list at least one value")
    for item in items:
        if isinstance(item, Parameter):
            raise TypeError("choice: a parameter cannot be a choice; give it a condition with ob.when(...)")
    return ChoiceParameter(items)


def constant(value: Any) -> ConstantParameter:
    """Return a parameter that always has this value, which may be of any kind that `choice` accepts."""
    return ConstantParameter(value)


def when(param_spec: Any, param: str, *, in_: Sequence[Any]) -> Parameter:
    """Return `param_spec` with a condition: it is drawn only if `param` has one of the values `in_`.

    `param` is the dotted path of another parameter from the root, such as "optimizer.name". `param_spec` is a
    parameter, a plain value, or a dict (a group). If the condition does not hold, the configuration does not have the
    key.
    """
    if isinstance(in_, (str, bytes)) or not hasattr(in_, "__iter__"):
        raise TypeError(f"when: in_ must be a list of values, got {in_!r}")
    values = tuple(in_)
    if not values:
        raise ValueError("when: in_ must not be empty")
    if not isinstance(param, str) or not param:
        raise TypeError(f'when: param must be a dotted path such as "optimizer.name", got {param!r}')
    parameter = as_parameter(param_spec, "when")
    if parameter.condition is not None:
        raise ValueError("when: the parameter has a condition already; put it in a group with the other one")
    return dataclasses.replace(parameter, condition=Condition(param, values))


def as_parameter(spec: Any, path: str) -> Parameter:
    """Return `spec` as a parameter: a plain value becomes a constant, a dict a group."""
    if isinstance(spec, Parameter):
        return spec
    if isinstance(spec, Mapping):
        return GroupParameter(spec)
    if isinstance(spec, (list, tuple)):
        raise TypeError(
            f"space: {path}: a list is ambiguous: write ob.choice({list(spec)!r}) for one of its values, "
            f"ob.constant({list(spec)!r}) for the list itself"
        )
    if isinstance(spec, SampleFrom):
        raise TypeError(f"space: {path}: ob.sample_from(...) is only allowed in a sweep's space or in a group of it")
    if callable(spec):
        raise TypeError(f"space: {path}: expected a parameter such as ob.uniform(0, 1), got a function")
    to_value(spec, f"space: {path}")
    return ConstantParameter(spec)


def fill_space(target: Any, space: Space, prefix: str = "") -> None:
    """Write every parameter of `space` into the protobuf map `target`."""
    if not isinstance(space, Mapping):
        raise TypeError(f"space: {prefix or 'space'} must be a dict, got {type(space).__name__}")
    for name, spec in space.items():
        path = f"{prefix}.{name}" if prefix else str(name)
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            raise ValueError(
                f"space: {quoted(path)} cannot name a parameter; "
                "use letters, digits and _, and start with a letter or _"
            )
        target[name].CopyFrom(as_parameter(spec, path).to_proto(path))


def to_value(value: Any, path: str) -> struct_pb2.Value:
    """Return a plain Python value (numpy scalars included) as a protobuf Value."""
    result = struct_pb2.Value()
    item = getattr(value, "item", None)
    if callable(item) and getattr(value, "ndim", None) == 0:
        value = item()
    if value is None:
        result.null_value = struct_pb2.NULL_VALUE
    elif isinstance(value, bool):
        result.bool_value = value
    elif isinstance(value, (int, float)):
        number = float(value)
        if not math.isfinite(number):
            raise ValueError(f"{path}: {value!r} is not a finite number")
        if isinstance(value, int) and int(number) != value:
            raise ValueError(f"{path}: {value!r} is too large: whole numbers go up to 2**53")
        result.number_value = number
    elif isinstance(value, str):
        result.string_value = value
    elif isinstance(value, Mapping):
        result.struct_value.SetInParent()
        for key, entry in value.items():
            if not isinstance(key, str):
                raise TypeError(f"{path}: keys must be strings, got {key!r}")
            result.struct_value.fields[key].CopyFrom(to_value(entry, f"{path}.{key}"))
    elif isinstance(value, (list, tuple)):
        result.list_value.SetInParent()
        result.list_value.values.extend(to_value(entry, path) for entry in value)
    else:
        raise TypeError(
            f"{path}: values must be numbers, strings, booleans, None, lists or dicts, "
            f"got {type(value).__name__}: {value!r}"
        )
    return result


def _float(
    name: str,
    low: SupportsFloat,
    high: SupportsFloat,
    *,
    log: bool = False,
    quantum: SupportsFloat = 0.0,
) -> FloatParameter:
    lo, hi, q = _real(name, "low", low), _real(name, "high", high), _real(name, "q", quantum)
    if not lo < hi:
        raise ValueError(f"{name}: high: {high!r} is not above low ({low!r}); for one fixed value use constant")
    if log and lo <= 0:
        raise ValueError(f"{name}: low: must be above 0 for a log range, got {low!r}")
    if q < 0 or (name.startswith("q") and q == 0):
        raise ValueError(f"{name}: q must be above 0, got {quantum!r}")
    if q > hi - lo:
        raise ValueError(f"{name}: q={quantum!r} is wider than the range from {low!r} to {high!r}")
    return FloatParameter(lo, hi, log, q)


def _int(
    name: str,
    low: SupportsIndex,
    high: SupportsIndex,
    *,
    log: bool = False,
    quantum: SupportsIndex = 1,
    upper: str = "high",
) -> IntParameter:
    lo, hi, q = _whole(name, "low", low), _whole(name, "high", high), _whole(name, "step", quantum)
    if lo > hi and upper == "high":
        raise ValueError(f"{name}: high: {hi} is not above low ({lo}); for one fixed value use constant")
    if lo > hi:
        raise ValueError(f"{name}: low must not be above {upper}, got low={lo}, {upper}={hi}")
    if log and lo <= 0:
        raise ValueError(f"{name}: low: must be above 0 for a log range, got {lo}")
    if q < 1:
        raise ValueError(f"{name}: step must be at least 1, got {q}")
    if not (-_INT64 <= lo and hi < _INT64):
        raise ValueError(f"{name}: bounds must fit 64 bits, got {lo} and {hi}")
    return IntParameter(lo, hi, log, q)


def _real(name: str, field: str, value: SupportsFloat) -> float:
    if isinstance(value, (str, bytes, bool)):
        raise TypeError(f"{name}: {field} must be a number, got {value!r}")
    try:
        number = float(value)
    except (TypeError, ValueError):
        raise TypeError(f"{name}: {field} must be a number, got {value!r}") from None
    if not math.isfinite(number):
        raise ValueError(f"{name}: {field} must be finite, got {value!r}")
    return number


def _whole(name: str, field: str, value: SupportsIndex) -> int:
    if isinstance(value, bool):
        raise TypeError(f"{name}: {field} must be a whole number, got {value!r}")
    try:
        return operator.index(value)
    except TypeError:
        raise TypeError(f"{name}: {field} must be a whole number, got {value!r}") from None


def _below(high: SupportsIndex) -> SupportsIndex:
    try:
        return operator.index(high) - 1
    except TypeError:
        return high
