"""Types of problems with several objectives, and the volume that a front dominates."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from problem import Config, Space

Losses = tuple[float, ...]


@dataclass(frozen=True)
class Front:
    """Functions to minimise together."""

    name: str
    losses: Callable[[Config], Losses]
    space: Space


class Fronts(dict[str, Front]):
    """Problems by name."""

    def add(self, name: str, space: Space) -> Callable[[Callable[[Config], Losses]], Callable[[Config], Losses]]:
        """Return a decorator that adds losses."""

        def added(losses: Callable[[Config], Losses]) -> Callable[[Config], Losses]:
            if name in self:
                raise ValueError(f"{name}: exists already")
            self[name] = Front(name, losses, space)
            return losses

        return added


def front(points: list[Losses]) -> list[Losses]:
    """Return the points that no other one dominates."""
    found: list[Losses] = []
    for p in sorted(set(points)):
        if not any(all(a <= b for a, b in zip(q, p, strict=True)) for q in found):
            found.append(p)
    return found


def volume(points: list[Losses], reference: Losses) -> float:
    """Return the volume that points dominate below a reference, by slices of the last objective."""
    inside = [p for p in points if all(a < r for a, r in zip(p, reference, strict=True))]
    if len(reference) == 1:
        return reference[0] - min(p[0] for p in inside) if inside else 0.0
    if len(reference) == 2:
        total, least = 0.0, reference[1]
        for x, y in sorted(inside):
            if y < least:
                total, least = total + (reference[0] - x) * (least - y), y
        return total
    inside = front(inside)
    inside.sort(key=lambda p: p[-1])
    total = 0.0
    for i, p in enumerate(inside):
        top = inside[i + 1][-1] if i + 1 < len(inside) else reference[-1]
        if top > p[-1]:
            total += (top - p[-1]) * volume([q[:-1] for q in inside[: i + 1]], reference[:-1])
    return total
