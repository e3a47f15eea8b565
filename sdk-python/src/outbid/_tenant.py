"""Tenants, as the server shows them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from outbid.v1 import tenant_pb2


@dataclass(frozen=True)
class Tenant:
    """Who owns sweeps: what it may have and what it has.

    `added` is False for one that has sweeps and that nobody added. `quota` bounds the devices that its trials hold at
    once by type, `devices` those of all types; `held` is what they hold. `max_sweeps` and `max_device_hours` bound
    `sweeps`, those that have not ended, and `device_hours`, those of this calendar month (UTC). None is no bound.
    """

    name: str
    added: bool
    weight: float
    devices: int | None
    quota: Mapping[str, int]
    max_sweeps: int | None
    max_device_hours: float | None
    members: tuple[str, ...]
    held: Mapping[str, int]
    sweeps: int
    device_hours: float


def tenant(state: tenant_pb2.TenantState) -> Tenant:
    """Return a tenant as it stands."""
    said, limits = state.tenant, state.tenant.limits
    return Tenant(
        name=said.name,
        added=state.added,
        weight=said.weight or 1.0,
        devices=said.quota.devices if said.quota.HasField("devices") else None,
        quota=dict(said.quota.types),
        max_sweeps=limits.sweeps if limits.HasField("sweeps") else None,
        max_device_hours=limits.device_hours if limits.HasField("device_hours") else None,
        members=tuple(said.members),
        held=dict(state.use.held),
        sweeps=state.use.sweeps,
        device_hours=state.use.device_hours,
    )
