"""Tenants, their limits and their usage."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from outbid.v1 import tenant_pb2


@dataclass(frozen=True)
class TenantLimit:
    """A limit of a tenant that is in force.

    `limit` is None if unlimited, and `used` is None if usage is not counted. `unit` is "", "bytes" or "bytes/s";
    `reached` describes the effect of reaching the limit.
    """

    limit: float | None
    used: float | None
    unit: str
    reached: str


@dataclass(frozen=True)
class Tenant:
    """A tenant: an owner of sweeps, with its limits and usage.

    `added` is False for a tenant that has sweeps but was never added. `quota` limits the devices that its trials hold
    at the same time by type, and `devices` those of all types; `held` is what they hold. `max_device_hours` limits
    `device_hours`, the device-hours of this calendar month (UTC). `sweeps` is the number of sweeps that have not ended.
    `limits` are by name, such as "report_rate". None means unlimited.
    """

    name: str
    added: bool
    weight: float
    devices: int | None
    quota: Mapping[str, int]
    max_device_hours: float | None
    members: tuple[str, ...]
    held: Mapping[str, int]
    sweeps: int
    device_hours: float
    limits: Mapping[str, TenantLimit]


def tenant(state: tenant_pb2.TenantState) -> Tenant:
    """Convert a tenant of the API."""
    said, limits = state.tenant, state.tenant.limits
    return Tenant(
        name=said.name,
        added=state.added,
        weight=said.weight or 1.0,
        devices=said.quota.devices if said.quota.HasField("devices") else None,
        quota=dict(said.quota.types),
        max_device_hours=limits.device_hours if limits.HasField("device_hours") else None,
        members=tuple(said.members),
        held=dict(state.use.held),
        sweeps=state.use.sweeps,
        device_hours=state.use.device_hours,
        limits={each.name: _limit(each) for each in state.limits},
    )


def _limit(said: tenant_pb2.TenantLimit) -> TenantLimit:
    return TenantLimit(
        limit=None if said.limit in (-1, math.inf) else said.limit,
        used=said.used if said.HasField("used") else None,
        unit=said.unit,
        reached=said.reached,
    )
