"""How a domain is drawn: the classes of Ray's that say so, for code that reads a space."""

from __future__ import annotations

from dataclasses import dataclass


class Sampler:
    """Base of samplers."""

    def __str__(self) -> str:
        return type(self).__name__


class BaseSampler(Sampler):
    """Whatever the domain does by itself."""

    def __str__(self) -> str:
        return "Base"


class Uniform(Sampler):
    """Every value alike."""


class LogUniform(Sampler):
    """Every order of magnitude alike."""


@dataclass
class Normal(Sampler):
    """By a normal distribution."""

    mean: float = 0.0
    sd: float = 0.0

    __str__ = Sampler.__str__


class Grid(Sampler):
    """Every value, one after the other."""

    def __str__(self) -> str:
        return "Grid"


@dataclass
class Quantized(Sampler):
    """By another sampler, in steps of `q`."""

    sampler: Sampler
    q: float

    def get_sampler(self) -> Sampler:
        """Return the other sampler."""
        return self.sampler

    __str__ = Sampler.__str__
