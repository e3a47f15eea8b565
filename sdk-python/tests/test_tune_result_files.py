"""Files in a trial's directory are copies: training code may change them, and no two trials share a directory."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from outbid.tune._config import CheckpointConfig, placement_of
from outbid.tune._plan import Plan
from outbid.tune._result_files import COPY, OWN, TABLE, Writer, agrees, newest_results, read_results, whole_result
from outbid.tune._trial import Trial, flatten


def results(count: int) -> list[dict[str, Any]]:
    return [{"training_iteration": n, "loss": 1 / n, "name": f"r{n}", "nest": {"a": n}} for n in range(1, count + 1)]


def write(writer: Writer, result: dict[str, Any]) -> None:
    writer.write(result, flatten(result))


@pytest.mark.parametrize("name", [COPY, TABLE])
@pytest.mark.parametrize("how", ["replaced", "appended", "deleted", "truncated"])
def test_a_file_that_training_code_writes_is_its_own(tmp_path: Path, name: str, how: str) -> None:
    one, two, three = results(3)
    writer, path = Writer(tmp_path, [one]), tmp_path / name
    write(writer, two)
    if how == "replaced":
        path.unlink()
        path.write_text("mine")
    elif how == "appended":
        with path.open("a") as file:
            file.write("mine")
    elif how == "deleted":
        path.unlink()
    else:
        path.write_text("mine")
    left = path.read_bytes() if path.exists() else None
    write(writer, three)
    writer.replace_last({**three, "name": "last"})
    writer.close()
    assert (path.read_bytes() if path.exists() else None) == left
    assert read_results(tmp_path) == [one, two, {**three, "name": "last"}]
    other = tmp_path / (TABLE if name == COPY else COPY)
    assert len(other.read_text().splitlines()) == (4 if other.name == TABLE else 3)


def test_a_directory_without_outbids_file_is_read_by_the_copy(tmp_path: Path) -> None:
    (tmp_path / COPY).write_text(json.dumps(results(1)[0]) + '\n{"half')
    assert read_results(tmp_path) == results(1) and not list(newest_results(tmp_path))
    (tmp_path / OWN).write_text("")
    assert read_results(tmp_path) == []


@pytest.mark.parametrize(
    ("metrics", "same"),
    [
        ({"loss": 0.5, "nest/a": 2}, True),
        ({"loss": 0.4}, False),
        ({"nest/a": 3}, False),
        ({"other": 1.0}, True),
        ({"name": 1.0}, True),
        ({"loss": math.nan}, False),
    ],
)
def test_a_file_counts_where_it_agrees_with_the_server(tmp_path: Path, metrics: dict[str, Any], same: bool) -> None:
    newest = results(2)[-1]
    assert agrees(newest, metrics) is same and agrees({"loss": math.nan}, {"loss": math.nan})
    writer = Writer(tmp_path, results(2))
    writer.close()
    trial = Trial(0, "t", "f", {"x": 1})
    found = whole_result(trial, tmp_path, {"training_iteration": 2, "nest/a": 2, **metrics})
    assert (found.get("name") == "r2") is same and found["config"] == {"x": 1}
    assert whole_result(trial, tmp_path, {"training_iteration": 1, "loss": 1.0})["name"] == "r1", "the trial is newer"
    assert whole_result(trial, tmp_path, {"training_iteration": 3, "nest/a": 2})["nest"] == {"a": 2}


def test_trials_that_ask_for_one_directory_get_two(tmp_path: Path) -> None:
    def plan(prefix: str) -> Plan:
        made = Plan(print, "f", str(tmp_path), prefix, {}, "", "max", placement_of(None), CheckpointConfig())
        made.trial_dirname = lambda trial: "same"
        return made

    first = plan("a")
    folders = [first.claim(first.trial(n, {})) for n in (0, 1, 0, 1)]  # once by the trial and once by the script
    assert folders == [tmp_path / "same", tmp_path / "same_1"] * 2
    assert [first.trial(n, {}).relative_logdir for n in (0, 1)] == ["same", "same_1"]
    assert [first.place(first.trial(n, {})).name for n in (0, 1)] == ["same", "same_1"]
    second = plan("b")  # another experiment of the same name
    assert second.claim(second.trial(0, {})) == tmp_path / "same_0"


def test_a_result_is_found_although_the_clock_has_moved_on(tmp_path: Path) -> None:
    """The time in a result is that of the trial; the server's program has another, which may be a second later."""
    trial = Trial(0, "t_00000", "t", {"x": 1})
    result = {**results(1)[0], "timestamp": 100, "pid": 7}
    writer = Writer(tmp_path, [])
    write(writer, result)
    writer.close()
    found = whole_result(trial, tmp_path, {"training_iteration": 1, "loss": 1.0, "timestamp": 101})
    assert found["name"] == "r1" and found["timestamp"] == 100
    other = whole_result(trial, tmp_path, {"training_iteration": 1, "loss": 0.5, "timestamp": 100})
    assert "name" not in other
