"""Checkpoints of other tenants run no code unless the caller allows it."""

from __future__ import annotations

import hashlib
import os
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import outbid as ob
from fake_server import FakeServer, make_trial
from outbid._training import tensors
from outbid._training.opaque import pack
from outbid.v1 import service_pb2 as pb


class Attack:
    """A pickle that creates a directory."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(self._path),)


def save(server: FakeServer, arrays: dict[str, Any], place: Path) -> None:
    """Make every trial of the server's sweep, which belongs to tenant vision, keep these arrays."""
    file = place / "saved"
    tensors.write(str(file), arrays, "")
    server.checkpoint = file.read_bytes()
    server.sha256 = hashlib.sha256(server.checkpoint).hexdigest()
    server.sweep.spec.tenant = "vision"


def trial_of(client: ob.Client) -> ob.TrialResult:
    return client.attach("s-1").result().trials[0]


@pytest.fixture
def attacked(server: FakeServer, tmp_path: Path) -> Path:
    """The path of a directory that is created if the checkpoint is unpickled."""
    made = tmp_path / "made"
    save(server, {"outbid.pickle": np.frombuffer(pickle.dumps(Attack(made)), dtype=np.uint8)}, tmp_path)
    server.trials = {0: make_trial(0)}
    return made


@pytest.mark.parametrize("tenant", ["speech", "*", ""])
def test_a_pickle_of_another_tenant_is_not_loaded(
    server: FakeServer, client: ob.Client, attacked: Path, tenant: str, tmp_path: Path
) -> None:
    server.caller.CopyFrom(pb.Caller(name="eve", tenant=tenant, role="viewer"))
    trial = trial_of(client)
    with pytest.raises(ob.UntrustedError, match=r"s-1/0 is a pickle of tenant vision.*trust=True.*download\(path\)"):
        trial.checkpoint()
    assert not attacked.exists()
    assert trial.download(tmp_path / "file").read_bytes() == server.checkpoint
    assert not attacked.exists()
    trial.checkpoint(trust=True)
    assert attacked.exists()


@pytest.mark.parametrize("caller", [pb.Caller(tenant="vision"), pb.Caller(tenant="*", local=True)])
def test_a_pickle_of_ones_own_is_loaded(
    server: FakeServer, client: ob.Client, attacked: Path, caller: pb.Caller
) -> None:
    server.caller.CopyFrom(caller)
    trial_of(client).checkpoint()
    assert attacked.exists()


def test_a_pickle_of_a_sweep_that_this_program_submitted_is_loaded(
    server: FakeServer, client: ob.Client, attacked: Path
) -> None:
    server.caller.CopyFrom(pb.Caller(tenant="*"))
    spec = pb.Sweep.FromString(server.sweep.SerializeToString()).spec
    client.submit_spec(spec)
    trial_of(client).checkpoint()
    assert attacked.exists()


def test_what_holds_no_code_is_loaded_from_every_tenant(server: FakeServer, client: ob.Client, tmp_path: Path) -> None:
    server.caller.CopyFrom(pb.Caller(tenant="speech"))
    server.trials = {0: make_trial(0)}
    save(server, {"w": np.arange(3)}, tmp_path)
    np.testing.assert_array_equal(trial_of(client).checkpoint()["w"], np.arange(3))
    (tmp_path / "d").mkdir()
    (tmp_path / "d" / "weights").write_text("of vision")
    save(server, pack(tmp_path / "d"), tmp_path)
    assert (trial_of(client).checkpoint() / "weights").read_text() == "of vision"


@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(
    names=st.sets(st.sampled_from(["outbid.pickle", "outbid.directory", "w", "pickle", "outbid.pickle.x"]), min_size=1),
    protocol=st.integers(0, pickle.HIGHEST_PROTOCOL),
)
def test_no_name_of_an_array_has_another_tenants_pickle_loaded(
    server: FakeServer, client: ob.Client, tmp_path: Path, names: set[str], protocol: int
) -> None:
    made = tmp_path / "made"
    content = np.frombuffer(pickle.dumps(Attack(made), protocol=protocol), dtype=np.uint8)
    save(server, dict.fromkeys(names, content), tmp_path)
    server.caller.CopyFrom(pb.Caller(tenant="speech"))
    server.trials = {0: make_trial(0)}
    try:
        trial_of(client).checkpoint()
    except Exception as error:
        assert "outbid.pickle" not in names or isinstance(error, ob.UntrustedError)
    assert not made.exists()


def test_secrets_are_set_listed_and_removed(server: FakeServer, client: ob.Client) -> None:
    set_ = client.secrets.set("wandb", "value", tenant="vision")
    assert (set_.name, set_.tenant, set_.set_by, set_.set_at) == ("wandb", "vision", "me", None)
    assert server.secrets == {("vision", "wandb"): "value"}
    assert [s.name for s in client.secrets.list(tenant="vision")] == ["wandb"]
    assert not client.secrets.list()
    client.secrets.remove("wandb", tenant="vision")
    with pytest.raises(ob.NotFoundError):
        client.secrets.remove("wandb", tenant="vision")
    with pytest.raises(TypeError, match="value must be text, got int") as raised:
        client.secrets.set("wandb", 12345678)  # type: ignore[arg-type]
    assert "12345678" not in str(raised.value)


def test_env_takes_secrets_beside_text(server: FakeServer, client: ob.Client) -> None:
    env: dict[str, str | ob.Secret] = {"A": "b", "WANDB_API_KEY": ob.Secret("wandb")}
    server.warnings = ["program.env.A looks like a secret"]
    program = ob.Sweep(space={}, metric="loss", mode="min", trials=1, program=ob.Program(command=["true"], env=env))
    with pytest.warns(UserWarning, match="looks like a secret"):
        program.submit(client=client)
    spec = server.sweep.spec
    assert dict(spec.program.env) == {"A": "b"} and dict(spec.program.secrets) == {"WANDB_API_KEY": "wandb"}
    server.warnings = []
    ob.Sweep(lambda trial: None, {}, metric="loss", mode="min", trials=1, env=env).submit(client=client)
    spec = server.sweep.spec
    assert dict(spec.function.env) == {"A": "b"} and dict(spec.function.secrets) == {"WANDB_API_KEY": "wandb"}
