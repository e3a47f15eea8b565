"""Sign-in: the token of `outbid login`, kept in one file per server and refreshed when it expires.

The Go package orchestrator/oidc/saved writes the same files.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import tempfile
import time
import urllib.parse
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from outbid._core import errors

_EARLY = 30.0
"""Seconds before its end at which a token is refreshed."""

_SECONDS = 10.0
"""The time limit of a request to the provider."""

_LARGEST = 1 << 20
"""The largest accepted answer of a provider in bytes."""


class SignIn:
    """A person's sign-in to a server."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._token = ""
        self._expires = 0.0

    def token(self) -> str:
        """Return the token, refreshed if it expires soon."""
        if time.time() + _EARLY < self._expires:
            return self._token
        saved = self._read()
        if time.time() + _EARLY >= self._expires:
            with _locked(self._path):  # providers accept a refresh token once, so processes take turns
                saved = self._read()
                if time.time() + _EARLY >= self._expires:
                    self._refresh(saved)
        return self._token

    def _read(self) -> dict[str, str]:
        try:
            saved: dict[str, str] = json.loads(self._path.read_text())
            self._use(saved["id_token"])
        except FileNotFoundError:
            raise errors.UnauthenticatedError("signed out: run `outbid login`") from None
        except (ValueError, KeyError, TypeError) as error:
            raise errors.UnauthenticatedError(f"{self._path} is damaged: remove it and run `outbid login`") from error
        return saved

    def _use(self, token: str) -> None:
        body = token.split(".")[1]
        claims = json.loads(base64.urlsafe_b64decode(body + "=" * (-len(body) % 4)))
        self._token, self._expires = token, float(claims["exp"])

    def _refresh(self, saved: dict[str, str]) -> None:
        """Get a new token and save it. If the provider does not answer, a token that has not expired stays in use."""
        try:
            answer = _ask(saved)
        except errors.OutbidError as error:
            if time.time() < self._expires:
                return
            raise errors.UnauthenticatedError(
                f"the sign-in to {saved.get('server', 'the server')} {error}; run `outbid login`"
            ) from error
        saved["id_token"] = answer["id_token"]
        saved["refresh_token"] = answer.get("refresh_token") or saved["refresh_token"]
        _save(self._path, saved)
        self._use(saved["id_token"])


def find(url: str) -> SignIn | None:
    """Return the sign-in to a server, or None without one."""
    path = _path(url)
    return SignIn(path) if path is not None and path.exists() else None


def _path(url: str) -> Path | None:
    """Return the file of a server, named by its scheme, host and port, or None if there cannot be one."""
    config = os.environ.get("XDG_CONFIG_HOME", "")
    home = os.environ.get("HOME", "")
    folder = Path(config) if config and Path(config).is_absolute() else Path(home) / ".config"
    try:
        parts = urllib.parse.urlsplit(url)
        port = parts.port or (443 if parts.scheme == "https" else 80)
    except ValueError:
        return None  # connecting to it raises a clear error
    if not parts.hostname or parts.scheme not in ("http", "https") or not (config or home):
        return None
    host = "".join(c if c in ".-0123456789abcdefghijklmnopqrstuvwxyz" else "-" for c in parts.hostname.lower())
    return folder / "outbid" / "sign-in" / f"{parts.scheme}_{host}_{port}.json"


def _ask(saved: dict[str, str]) -> dict[str, Any]:
    """Ask the provider for a new token."""
    import ssl
    import urllib.error
    import urllib.request

    if not saved.get("refresh_token"):
        raise errors.UnauthenticatedError("has ended: the provider gave no refresh token")
    form = {
        "grant_type": "refresh_token",
        "refresh_token": saved["refresh_token"],
        "client_id": saved["client_id"],
    }
    address = saved["token_url"]
    if not address.startswith(("https://", "http://")):
        raise errors.UnauthenticatedError(f"has a token_url that must begin with https://, got {address!r}")
    request = urllib.request.Request(address, urllib.parse.urlencode(form).encode())
    context = ssl.create_default_context(cadata=saved.get("ca") or None)
    try:
        with urllib.request.urlopen(request, timeout=_SECONDS, context=context) as reply:
            answer: dict[str, Any] = json.loads(reply.read(_LARGEST))
    except urllib.error.HTTPError as error:
        with error:
            detail = error.read(_LARGEST).decode(errors="replace")[:500]
        raise errors.UnauthenticatedError(
            f"could not be refreshed: {address} answers {error.code}: {detail}"
        ) from error
    except (OSError, ValueError) as error:
        raise errors.UnavailableError(f"could not be refreshed: {address}: {error}") from error
    if not answer.get("id_token"):
        raise errors.UnauthenticatedError("has ended: the provider refreshes without an ID token")
    return answer


def _save(path: Path, saved: dict[str, str]) -> None:
    """Replace a file that only its owner can read."""
    fd, name = tempfile.mkstemp(dir=path.parent, prefix=".sign-in-")  # mode 0600
    try:
        with os.fdopen(fd, "w") as file:
            json.dump(saved, file, indent=2)
            file.write("\n")
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Hold the lock that `outbid` takes too."""
    try:
        import fcntl
    except ImportError:  # Windows
        yield
        return
    with Path(f"{path}.lock").open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
