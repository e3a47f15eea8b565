"""A fork's part of a trial, and its samples."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import outbid as ob
from outbid.v1 import bus_pb2, node_pb2, session_pb2


class NoLink:
    """A session that does not send anything."""


def trial(part: bus_pb2.ForkPart | None = None, start: int = 0) -> ob.Trial:
    """Return a trial that a worker has assigned."""
    fork = node_pb2.ForkRef(sweep="s-1", trial=0, lease_id=7)
    assigned = session_pb2.TrialAssignment(fork=fork, config_json="{}", seed=9, part=part, start_step=start)
    link: Any = NoLink()
    return ob.Trial(assigned, link)


def test_a_trial_that_is_not_forked_has_all_samples() -> None:
    alone = trial()
    assert alone.fork == ob.Fork(index=0, count=1, seed=9, trial_seed=9)
    assert alone.shard(5).tolist() == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("n", [0, 1, 7, 700])
def test_every_sample_is_one_forks(n: int) -> None:
    shares, before = (4, 2, 1), 0
    seen: list[int] = []
    for index, share in enumerate(shares):
        part = bus_pb2.ForkPart(index=index, count=3, share=share, before=before, total=7, trial_seed=5)
        mine = trial(part, start=50)
        assert mine.fork == ob.Fork(index=index, count=3, seed=9, trial_seed=5)
        assert abs(len(mine.shard(n)) - n * share / 7) <= 1, "who trains more steps has more samples"
        seen += mine.shard(n).tolist()
        before += share
    assert sorted(seen) == list(range(n))


def test_another_round_has_other_samples() -> None:
    part = bus_pb2.ForkPart(index=1, count=2, share=1, before=1, total=2)
    assert not np.array_equal(trial(part, 50).shard(100), trial(part, 60).shard(100))
    assert np.array_equal(trial(part, 50).shard(100), trial(part, 50).shard(100))


@pytest.mark.parametrize("forks", ["many", (0, 2), (1, 1), (3, 2), (1, 2, 3), 5, (True, 2)])
def test_forks_that_cannot_be(forks: Any) -> None:
    with pytest.raises(ValueError, match=r'forks must be "auto" or \(least, most\)'):
        ob.Resources(forks=forks).to_proto()


@pytest.mark.parametrize(("forks", "text"), [(None, ""), ("auto", "auto"), ((2, 5), "2-5")])
def test_forks_as_the_api_says_them(forks: Any, text: str) -> None:
    assert ob.Resources(forks=forks).to_proto().forks == text


@pytest.mark.parametrize("merge", ["worst", "best(", "", "Uniform", None])
def test_merges_that_cannot_be(merge: Any) -> None:
    with pytest.raises(ValueError, match="forks_merge must be"):
        ob.Resources(forks_merge=merge).to_proto()


@pytest.mark.parametrize(
    ("merge", "text"), [("steps", ""), ("uniform", "uniform"), ("best", "best"), ("outer(0.5, 0.8)", "outer(0.5, 0.8)")]
)
def test_merges_as_the_api_says_them(merge: str, text: str) -> None:
    assert ob.Resources(forks="auto", forks_merge=merge).to_proto().forks_merge == text
