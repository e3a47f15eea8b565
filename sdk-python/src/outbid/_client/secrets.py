"""Secrets of tenants, whose values the server never shows."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from dataclasses import dataclass

from outbid._core import validation
from outbid._core.proto_convert import time_of
from outbid.rpc import Service
from outbid.v1 import service_pb2 as pb


@dataclass(frozen=True)
class SecretInfo:
    """A secret without its value: its tenant, when it was set, and the name of the token that set it."""

    name: str
    tenant: str
    set_at: datetime.datetime | None
    set_by: str


class Secrets:
    """The secrets of a tenant: the caller's unless `tenant` names another. Use `Client.secrets`."""

    def __init__(self, rpc: Service) -> None:
        self._rpc = rpc

    def __repr__(self) -> str:
        return f"<outbid secrets on {self._rpc.url}>"

    def set(self, name: str, value: str, *, tenant: str = "") -> SecretInfo:
        """Store a secret or replace its value, at most 32 KiB. Trials that start from now on get it.

        Do not write the value into a script or a notebook: read it with `getpass.getpass()` or from a file.
        """
        validation.text("secrets.set: name", name, "the name of a secret")
        if not isinstance(value, str):
            raise TypeError(f"secrets.set: value must be text, got {type(value).__name__}")
        request = pb.SetSecretRequest(tenant=tenant, name=name, value=value)
        return _info(self._rpc.set_secret(request).secret)

    def list(self, *, tenant: str = "") -> Sequence[SecretInfo]:
        """Return the secrets by name."""
        return [_info(secret) for secret in self._rpc.list_secrets(pb.ListSecretsRequest(tenant=tenant)).secrets]

    def remove(self, name: str, *, tenant: str = "") -> None:
        """Remove a secret. Trials that need it then fail to start. Raises NotFoundError if it does not exist."""
        self._rpc.delete_secret(pb.DeleteSecretRequest(tenant=tenant, name=name))


def _info(secret: pb.Secret) -> SecretInfo:
    return SecretInfo(name=secret.name, tenant=secret.tenant, set_at=time_of(secret, "set_at"), set_by=secret.set_by)
