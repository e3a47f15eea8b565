"""The forms in which an Optuna storage keeps objects: categories as texts, attributes as pickles."""

from __future__ import annotations

import base64
import contextlib
import copy
import functools
import hashlib
import os
import pickle
import sys
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import FunctionType
from typing import Any

from optuna.distributions import CategoricalDistribution
from optuna.trial import FrozenTrial

from outbid._search.categories import index_of, is_plain, text_of, texts_of

_PICKLED = "outbid:pickle:"  # prefix of a pickled attribute
_FILED = "outbid:file:"  # prefix of the name of a file with the pickle
_INLINE = 64 << 10  # maximum bytes of a pickle that is stored with the trial if there is a folder for larger ones


class Choices(CategoricalDistribution):
    """A categorical distribution over objects, which are compared by their texts.

    A process that unpickles a function or an object has a copy, which usually is not equal to the original.
    """

    def __init__(self, choices: Sequence[Any], texts: Sequence[Any] | None = None) -> None:
        self.choices = tuple(choices)  # Optuna's constructor would warn about objects
        self.texts = texts_of(self.choices) if texts is None else tuple(texts)

    def to_internal_repr(self, param_value_in_external_repr: Any) -> float:
        """Return the index of a choice. Raises ValueError for other values."""
        found = index_of(self.choices, self.texts, param_value_in_external_repr)
        if found is None:
            raise ValueError(f"'{param_value_in_external_repr}' not in {self.choices}.")
        return found

    def to_external_repr(self, param_value_in_internal_repr: float) -> Any:
        """Return the text of a choice, because samplers write the values that they draw as JSON."""
        return self.texts[int(param_value_in_internal_repr)]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Choices) and self.texts == other.texts

    def __hash__(self) -> int:
        return hash(self.texts)


class _Stored(str):
    """A stored attribute that was not read yet."""


def unread(attributes: dict[str, Any]) -> dict[str, Any]:
    """Mark the stored attributes that are pickles."""
    return {key: _Stored(value) if is_encoded(value) else value for key, value in attributes.items()}


def _read(attributes: dict[str, Any], folder: Path | None) -> dict[str, Any]:
    """Unpickle the attributes that `unread` marked, and return all."""
    for key, value in attributes.items():
        if type(value) is _Stored:
            attributes[key] = decoded(str(value), folder)
    return attributes


class ReadOnAccess(FrozenTrial):
    """A trial whose attributes are unpickled on first access."""

    _folder: Path | None

    @property
    def user_attrs(self) -> dict[str, Any]:
        """The user attributes."""
        return _read(self._user_attrs, self._folder)

    @user_attrs.setter
    def user_attrs(self, value: dict[str, Any]) -> None:
        self._user_attrs = value

    @property
    def system_attrs(self) -> dict[str, Any]:
        """The system attributes."""
        return _read(self._system_attrs, self._folder)

    @system_attrs.setter
    def system_attrs(self, value: Any) -> None:
        self._system_attrs = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, FrozenTrial) and plain_trial(self).__dict__ == plain_trial(other).__dict__

    __hash__ = FrozenTrial.__hash__

    def __repr__(self) -> str:
        return repr(plain_trial(self))


def plain_trial(trial: FrozenTrial) -> FrozenTrial:
    """Return a trial of Optuna's class, with all objects unpickled."""
    if type(trial) is FrozenTrial and not any(isinstance(d, Choices) for d in trial.distributions.values()):
        return trial
    plain = copy.copy(trial)
    plain._user_attrs, plain._system_attrs = trial.user_attrs, trial.system_attrs
    plain._distributions = {
        name: plain_distribution(d.choices) if isinstance(d, Choices) else d for name, d in trial.distributions.items()
    }
    plain.__class__ = FrozenTrial
    plain.__dict__.pop("_folder", None)
    return plain


def plain_distribution(choices: Sequence[Any]) -> CategoricalDistribution:
    """Return Optuna's distribution over objects."""
    with _unwarned():
        return CategoricalDistribution(choices)


@contextlib.contextmanager
def _unwarned() -> Iterator[None]:
    """Silence Optuna's warning that not every storage keeps objects in distributions."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def fixed_text(value: Any) -> Any:
    """Return an enqueued parameter in stored form: numpy scalars as Python's, other objects as text."""
    if getattr(value, "ndim", None) == 0 and callable(item := getattr(value, "item", None)):
        value = item()
    return value if is_plain(value) else text_of(value)


def encoded(key: str, value: Any, folder: Path | None) -> Any:
    """Return an attribute in the form in which it is stored."""
    if is_plain(value) and not is_encoded(value):
        return value
    import cloudpickle

    try:
        data = cloudpickle.dumps(value)
    except Exception as error:
        raise TypeError(
            f"attribute {key!r} must be an object that can be pickled, got {type(value).__name__}: {error}"
        ) from error
    if folder is None or len(data) <= _INLINE:
        return _PICKLED + base64.b64encode(data).decode()
    name = hashlib.sha256(data).hexdigest()
    part = folder / f"{name}.{os.getpid()}"
    part.write_bytes(data)
    part.replace(folder / name)
    return _FILED + name


def is_encoded(value: Any) -> bool:
    """Return whether a stored attribute is a pickle."""
    return type(value) is str and value.startswith((_PICKLED, _FILED))


def decoded(value: Any, folder: Path | None) -> Any:
    """Return the original value of an attribute. Unpickling runs code of anyone who can write to the storage."""
    if not is_encoded(value):
        return value
    if value.startswith(_PICKLED):
        return pickle.loads(base64.b64decode(value[len(_PICKLED) :]))
    if folder is None:
        return value
    return pickle.loads((folder / value[len(_FILED) :]).read_bytes())


def packed_choice(choice: Any) -> dict[str, Any] | None:
    """Return an object in the form stored in the study, or None if it is JSON or cannot be pickled."""
    import cloudpickle

    if choice is None or type(choice) in (bool, int, float, str):
        return None
    try:
        kept = {"pickle": base64.b64encode(cloudpickle.dumps(choice)).decode()}
    except Exception:
        return None
    if isinstance(choice, FunctionType):
        kept["place"] = f"{choice.__module__}:{choice.__qualname__}"
    return kept


def unpacked_choice(kept: dict[str, Any] | None, text: Any) -> Any:
    """Return the object of a text from the form stored in the study."""
    if kept is None:
        return text
    choice = pickle.loads(base64.b64decode(kept["pickle"]))
    return _original(choice, kept.get("place", "")) if isinstance(choice, FunctionType) else choice


def _original(copied: FunctionType, place: str) -> Any:
    """Return the function in this process that another is a copy of, or the copy if that was not found."""
    module, _, name = place.partition(":")
    try:
        mine = functools.reduce(getattr, name.split("."), sys.modules[module])
    except (KeyError, AttributeError):
        return copied
    return mine if isinstance(mine, FunctionType) and mine.__code__ == copied.__code__ else copied
