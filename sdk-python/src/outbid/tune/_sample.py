"""Ray Tune's domains, from which parameters are drawn. The same seed gives the same values as in Ray."""

from __future__ import annotations

import copy
import inspect
import math
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from outbid.tune._samplers import BaseSampler, Grid, LogUniform, Normal, Quantized, Sampler, Uniform

if TYPE_CHECKING:
    import numpy as np

RandomState: TypeAlias = "int | np.random.Generator | np.random.RandomState | None"
"""A source of randomness; None is numpy's global generator."""


class Rng:
    """A common interface of numpy's old and new generators. A number is the seed of a new generator."""

    def __init__(self, source: Any = None) -> None:
        if isinstance(source, Rng):
            self._source: Any = source._source
            return
        import numpy as np

        if isinstance(source, (int, np.integer)):
            source = np.random.default_rng(int(source))
        self._source = source

    @property
    def _legacy(self) -> Any:
        import numpy as np

        return np.random if self._source is None else self._source

    def uniform(self, low: float, high: float) -> float:
        """Return a real number."""
        return float(self._legacy.uniform(low, high, size=1)[0])

    def normal(self, mean: float, sd: float) -> float:
        """Return a normally distributed number."""
        return float(self._legacy.normal(mean, sd, size=1)[0])

    def below(self, low: int, high: int) -> int:
        """Return a whole number; `high` is excluded."""
        import numpy as np

        new = isinstance(self._source, np.random.Generator)
        return int((self._legacy.integers if new else self._legacy.randint)(low, high, size=1)[0])

    def index(self, count: int) -> int:
        """Return a random index below `count`."""
        import numpy as np

        return int(self._legacy.choice(np.arange(0, count), size=1)[0])


class Domain:
    """The values of one parameter."""

    def sample(self, config: Any = None, size: int = 1, random_state: Any = None) -> Any:
        """Draw a value, or a list of `size` values if that is above 1."""
        rng = Rng(random_state)
        values = [self.cast(self._draw(rng, config)) for _ in range(size)]
        return values if size > 1 else values[0]

    def cast(self, value: Any) -> Any:
        """Convert a value to the domain's type."""
        return value

    def is_grid(self) -> bool:
        """Whether every value is tried, instead of drawing one."""
        return False

    def is_function(self) -> bool:
        """Whether a function computes the value."""
        return False

    def is_valid(self, value: Any) -> bool:
        """Whether a value is possible."""
        return True

    def get_sampler(self) -> Sampler:
        """Return the sampler."""
        return BaseSampler()

    @property
    def domain_str(self) -> str:
        """The domain as text."""
        return "(unknown)"

    def _draw(self, rng: Rng, config: Any) -> Any:
        raise NotImplementedError


class _Range(Domain):
    """Numbers between two bounds, with an optional log scale and optional steps of `q`."""

    def __init__(self, lower: float, upper: float, *, log: bool = False, q: float = 0) -> None:
        self.lower, self.upper, self.log, self.q = lower, upper, log, q

    def get_sampler(self) -> Sampler:
        """Return the sampler: log-uniform or uniform, with optional steps."""
        inner: Sampler = LogUniform() if self.log else Uniform()
        return Quantized(inner, self.q) if self.q else inner

    def quantized(self, q: float) -> _Range:
        """Return the same range in steps of `q`."""
        made = copy.copy(self)
        made.q = q
        return made

    def loguniform(self, base: object = None) -> _Range:
        """Return the same range, log-uniform. `base` is ignored."""
        return type(self)(self.lower, self.upper, log=True, q=self.q)

    def uniform(self) -> _Range:
        """Return the same range, uniform."""
        return type(self)(self.lower, self.upper, q=self.q)

    def is_valid(self, value: Any) -> bool:
        """Whether a value is within the bounds."""
        return bool(self.lower <= value <= self.upper)

    @property
    def domain_str(self) -> str:
        """The bounds."""
        return f"({self.lower}, {self.upper})"

    def __repr__(self) -> str:
        what = ("log" if self.log else "") + type(self).__name__.lower()
        return f"{what}({self.lower}, {self.upper}{f', q={self.q}' if self.q else ''})"


class Float(_Range):
    """A real number, uniform, log-uniform or normal."""

    def __init__(
        self,
        lower: float | None = None,
        upper: float | None = None,
        *,
        log: bool = False,
        q: float = 0,
        normal: tuple[float, float] | None = None,
    ) -> None:
        super().__init__(
            -math.inf if lower is None else lower,
            math.inf if upper is None else upper,
            log=log,
            q=q,
        )
        self.normal = normal
        if log and self.lower <= 0:
            raise ValueError(f"loguniform: lower must be above 0, got {lower!r}; give the bounds, not their logarithms")
        if normal is not None and not normal[1] > 0:
            raise ValueError(f"randn: sd must be above 0, got {normal[1]!r}")
        for name, bound in (("lower", self.lower), ("upper", self.upper)):
            if q and math.isfinite(bound) and not math.isclose(bound / q, round(bound / q)):
                raise ValueError(f"the {name} bound {bound} is not a multiple of the quantization factor {q}")

    def cast(self, value: Any) -> float:
        """Return a float."""
        return float(value)

    def get_sampler(self) -> Sampler:
        """Return the sampler: normal, log-uniform, or uniform, with optional steps."""
        if self.normal is None:
            return super().get_sampler()
        inner = Normal(*self.normal)
        return Quantized(inner, self.q) if self.q else inner

    def _draw(self, rng: Rng, config: Any) -> float:
        import numpy as np

        low, high = self.lower, self.upper
        if self.normal is not None:
            value = rng.normal(*self.normal)
        else:
            if self.q:
                low, high = _grid(low, self.q, np.ceil) * self.q, _grid(high, self.q, np.floor) * self.q
            value = _real(rng, low, high, self.log)
        return float(np.round(np.divide(value, self.q)) * self.q) if self.q else value


class Integer(_Range):
    """A whole number below `upper`; `upper` is included if `q` is above 1."""

    def __init__(self, lower: int, upper: int, *, log: bool = False, q: int = 0) -> None:
        super().__init__(lower, upper, log=log, q=q)
        if log and lower <= 0:
            raise ValueError(f"lograndint: lower must be above 0, got {lower!r}")

    def cast(self, value: Any) -> int:
        """Return an int."""
        return int(value)

    def _draw(self, rng: Rng, config: Any) -> int:
        import numpy as np

        low, high = int(self.lower), int(self.upper)
        if self.q:
            low, high = int(_grid(low, self.q, np.ceil)), int(_grid(high, self.q, np.floor))
            if high < low:
                raise ValueError(f"no multiple of {self.q} lies between {self.lower} and {self.upper}")
            high += 0 if self.q == 1 else 1
        value = int(np.floor(_real(rng, low, high, True))) if self.log else rng.below(low, high)
        return int(value * self.q) if self.q else value


class Categorical(Domain):
    """One of some values, or all of them in a grid."""

    def __init__(self, categories: Iterable[Any], *, grid: bool = False) -> None:
        self.categories = list(categories)
        self._grid = grid

    def grid(self) -> Categorical:
        """Return the same values as a grid."""
        return Categorical(self.categories, grid=True)

    def is_grid(self) -> bool:
        """Whether every value is tried."""
        return self._grid

    def get_sampler(self) -> Sampler:
        """Return the sampler."""
        return Grid() if self._grid else Uniform()

    def is_valid(self, value: Any) -> bool:
        """Whether a value is one of the categories."""
        return value in self.categories

    def __len__(self) -> int:
        return len(self.categories)

    def __getitem__(self, item: int) -> Any:
        return self.categories[item]

    def __repr__(self) -> str:
        return f"choice({self.categories})"

    @property
    def domain_str(self) -> str:
        """The categories as text."""
        return f"{self.categories}"

    def _draw(self, rng: Rng, config: Any) -> Any:
        return self.categories[rng.index(len(self.categories))]


class Function(Domain):
    """The result of a function, which may use values that are already drawn."""

    def __init__(self, func: Callable[..., Any]) -> None:
        self.func = func
        signature = inspect.signature(func)
        try:
            signature.bind({})
            self.pass_config = True
        except TypeError:
            self.pass_config = False
            try:
                signature.bind()
            except TypeError:
                raise ValueError("sample_from: the function must take no argument, or the spec") from None

    def is_function(self) -> bool:
        """Return True."""
        return True

    def _draw(self, rng: Rng, config: Any) -> Any:
        return self.func(config) if self.pass_config else self.func()


def _real(rng: Rng, low: float, high: float, log: bool) -> float:
    import numpy as np

    if not log:
        if not (math.isfinite(low) and math.isfinite(high)):
            raise ValueError("a uniform parameter needs both bounds")
        return rng.uniform(low, high)
    if not (low > 0 and 0 < high < math.inf):
        raise ValueError(f"a log-uniform parameter needs bounds above 0, got {low} and {high}")
    return float(np.exp(rng.uniform(float(np.log(low)), float(np.log(high)))))


def _grid(bound: float, q: float, rounded: Callable[[float], float]) -> float:
    """Return the multiple of q nearest to a bound, rounded inwards if the bound is not a multiple."""
    if not math.isfinite(bound):
        return bound
    nearest = round(bound / q)
    return nearest if math.isclose(bound / q, nearest) else float(rounded(bound / q))


def grid_search(values: Iterable[Any]) -> dict[str, Any]:
    """Return a grid: a trial, or `num_samples` trials, for each value."""
    return {"grid_search": values}


def sample_from(func: Callable[..., Any]) -> Function:
    """Return a parameter that a function computes from nothing, `spec` (`spec.config.lr`), or the config."""
    return Function(func)


def uniform(lower: float, upper: float) -> Float:
    """Return a real number."""
    return Float(lower, upper)


def quniform(lower: float, upper: float, q: float) -> Float:
    """Return a real number in steps of `q`."""
    return Float(lower, upper, q=q)


def loguniform(lower: float, upper: float, base: object = None) -> Float:
    """Return a log-uniform real number. `base` is ignored."""
    return Float(lower, upper, log=True)


def qloguniform(lower: float, upper: float, q: float, base: object = None) -> Float:
    """Return a log-uniform real number in steps of `q`."""
    return Float(lower, upper, log=True, q=q)


def randn(mean: float = 0.0, sd: float = 1.0) -> Float:
    """Return a normally distributed number."""
    return Float(normal=(mean, sd))


def qrandn(mean: float, sd: float, q: float) -> Float:
    """Return a normally distributed number in steps of `q`."""
    return Float(normal=(mean, sd), q=q)


def randint(lower: int, upper: int) -> Integer:
    """Return a whole number below `upper`."""
    return Integer(lower, upper)


def lograndint(lower: int, upper: int, base: object = None) -> Integer:
    """Return a log-uniform whole number below `upper`."""
    return Integer(lower, upper, log=True)


def qrandint(lower: int, upper: int, q: int = 1) -> Integer:
    """Return a whole number in steps of `q`; `upper` is included if q is above 1."""
    return Integer(lower, upper, q=q)


def qlograndint(lower: int, upper: int, q: int, base: object = None) -> Integer:
    """Return a log-uniform whole number in steps of `q`; `upper` is included if q is above 1."""
    return Integer(lower, upper, log=True, q=q)


def choice(categories: Sequence[Any]) -> Categorical:
    """Return one of some values."""
    return Categorical(categories)


def fresh(space: Any) -> Any:
    """Return a copy of a space that may be modified."""
    return copy.deepcopy(space)
