"""Ray's sampler classes, for code that inspects a space."""

from __future__ import annotations

from dataclasses import dataclass


class Sampler:
    """Base class of samplers."""

    def __str__(self) -> str:
        return type(self).__name__


class BaseSampler(Sampler):
    """The domain's default distribution."""

    def __str__(self) -> str:
        return "Base"


class Uniform(Sampler):
    """A uniform distribution."""


class LogUniform(Sampler):
    """A log-uniform distribution."""


@dataclass
class Normal(Sampler):
    """A normal distribution."""

    mean: float = 0.0
    sd: float = 0.0

    __str__ = Sampler.__str__


class Grid(Sampler):
    """Every value, one after the other."""

    def __str__(self) -> str:
        return "Grid"


@dataclass
class Quantized(Sampler):
    """Another sampler, in steps of `q`."""

    sampler: Sampler
    q: float

    def get_sampler(self) -> Sampler:
        """Return the inner sampler."""
        return self.sampler

    __str__ = Sampler.__str__
