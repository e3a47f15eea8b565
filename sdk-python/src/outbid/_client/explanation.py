"""The sentences of `outbid explain`."""

from __future__ import annotations

import json
import os
import subprocess

from outbid._client.connection import Connection
from outbid._client.local_server import find_binary
from outbid._core.errors import OutbidError


def explanation_of(client: Connection, name: str) -> str:
    """Return the sentences about a sweep, or about a trial named SWEEP/NUMBER, one a line.

    They are written by the `outbid` binary, so that they are those of the command line.
    """
    try:
        binary = find_binary()
    except FileNotFoundError as missing:
        raise OutbidError(f"explain needs the `outbid` binary: {missing}") from None
    command = [binary, "explain", name, "-o", "json", "--server", client.url]
    if client.ca_file:
        command += ["--ca", client.ca_file]
    environment = {**os.environ, **({"OUTBID_TOKEN": client.token} if client.token else {})}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    if done.returncode != 0:
        said = done.stderr.strip().removeprefix("outbid: ")
        raise OutbidError(said or f"outbid explain ended with code {done.returncode}")
    found = json.loads(done.stdout)
    return "\n".join(found[part] for part in ("why", "lost", "otherwise"))
