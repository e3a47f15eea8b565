"""Trials of Ray Tune scripts that may grow to more devices than they start with."""

from __future__ import annotations

import pickle
import warnings
from typing import Any

import pytest

import outbid as ob
from outbid import tune
from outbid.tune._config import Placement, placement_of
from outbid.tune._elastic import Growth
from outbid.tune._plan import Plan
from outbid.tune._resources import growth_of, needed
from outbid.tune.schedulers import (
    ASHAScheduler,
    DistributeResources,
    DistributeResourcesToTopJob,
    ResourceChangingScheduler,
)
from outbid.v1 import event_pb2
from outbid.v1 import service_pb2 as pb


class Cluster:
    """A client of a cluster whose nodes have devices of these types."""

    local = False

    def __init__(self, *nodes: list[str], state: Any = event_pb2.NODE_STATE_UP) -> None:
        self.answer = pb.ListNodesResponse()
        for types in nodes:
            node = self.answer.nodes.add(state=state)
            for i, kind in enumerate(types):
                node.info.devices.add(index=i, type=kind)
        self.rpc = self

    def list_nodes(self, request: pb.ListNodesRequest) -> pb.ListNodesResponse:
        return self.answer


def plan_of(resources: Any, scheduler: Any, cluster: Any) -> Plan:
    placement = tune.PlacementGroupFactory(resources)
    plan = Plan(print, "t", "", "t", {}, "loss", "min", placement, tune.CheckpointConfig())
    plan.growth = growth_of(scheduler, placement, cluster)
    return plan


def asked(resources: Any, function: DistributeResources, cluster: Any) -> tuple[Any, tuple[str, ...], tuple[str, ...]]:
    """Return the devices that trials request, and the device types that they accept and exclude."""
    needs = needed(plan_of(resources, ResourceChangingScheduler(None, function), cluster), cluster)
    return needs.devices, tuple(needs.types), tuple(needs.exclude_types)


def test_trials_ask_for_as_much_as_a_node_has() -> None:
    mixed: Any = Cluster(["v100"] * 4, ["v100"] * 8, ["cpu"] * 16)
    gpus = [{"CPU": 2, "GPU": 1}]
    assert asked(gpus, DistributeResources(), mixed) == ((1, 8), (), ("cpu",))
    assert asked([{"CPU": 1}], DistributeResources(), mixed) == ((1, 16), ("cpu",), ())
    assert asked([{"CPU": 2}], DistributeResources(), mixed) == ((2, 16), ("cpu",), ())
    assert asked([{"GPU": 1}], DistributeResources(increase_by={"GPU": 2}, increase_by_times=2), mixed)[0] == (1, 5)
    assert asked(gpus, DistributeResources(reserve_resources={"GPU": 6}), mixed)[0] == (1, 6)
    assert asked(gpus, DistributeResources(increase_by_times=2), mixed)[0] == (1, 8), "it applies only with increase_by"
    many = [{"CPU": 1}, {"GPU": 2}, {"GPU": 2}]
    assert asked(many, DistributeResources(add_bundles=True), mixed)[0] == (4, 8)


@pytest.mark.parametrize(
    ("scheduler", "resources"),
    [
        (ASHAScheduler(), [{"GPU": 1}]),
        (None, [{"CPU": 3}]),
    ],
)
def test_others_keep_what_they_start_with(scheduler: Any, resources: Any) -> None:
    cluster: Any = Cluster(["v100"] * 4, ["cpu"] * 4)
    plan = plan_of(resources, scheduler, cluster)
    assert plan.growth is None
    needs = needed(plan, cluster)
    assert needs.devices == 1 and needs.cpus == (3 if scheduler is None else 0)


@pytest.mark.parametrize(
    ("cluster", "resources", "message"),
    [
        (Cluster(["cpu"] * 4), [{"GPU": 1}], r"keep their initial resources, 1 GPU each: .* have \[0\] GPUs"),
        (Cluster(["cpu"] * 4), [{"CPU": 4}], r"4 CPU each: .* have \[4\] CPU cores"),
        (Cluster(), [{"CPU": 1}], "have no CPU cores as devices, and one trial could use at most 0"),
        (Cluster(["cpu"] * 4, state=event_pb2.NODE_STATE_LOST), [{"CPU": 1}], "have no CPU cores"),
    ],
)
def test_a_cluster_without_more_is_said(cluster: Any, resources: Any, message: str) -> None:
    with pytest.warns(UserWarning, match=message):
        assert plan_of(resources, ResourceChangingScheduler(), cluster).growth is None


def has(resources: Any, devices: int, **how: Any) -> list[dict[str, float]]:
    growth = DistributeResources(**how).growth(tune.PlacementGroupFactory(resources))
    return growth.has(devices).bundles


def test_a_trial_is_told_what_it_has() -> None:
    assert has([{"CPU": 1}], 1) == [{"CPU": 1}]
    assert has([{"CPU": 1}], 3) == [{"CPU": 3}]
    assert has([{"CPU": 4, "GPU": 1}], 3) == [{"CPU": 4, "GPU": 3}]
    assert has([{"CPU": 4, "GPU": 1}], 4, increase_by={"GPU": 2, "CPU": 3}) == [{"CPU": 7, "GPU": 4}]
    assert has([{"GPU": 0.5}], 1) == [{"GPU": 0.5}] and has([{"GPU": 0.5}], 2) == [{"GPU": 2}]
    bundles = [{"CPU": 1}, {"CPU": 2, "GPU": 2}]
    assert has(bundles, 6, add_bundles=True) == [*bundles, bundles[1], bundles[1]]
    assert has(bundles, 5, add_bundles=True) == [*bundles, bundles[1], {"GPU": 1}]
    placement = DistributeResources().growth(Placement([{"CPU": 1}], "SPREAD")).has(2)
    assert placement.strategy == "SPREAD" and placement.head_cpus == 2


@pytest.mark.parametrize(
    ("given", "resources", "message"),
    [
        ({"increase_by": {"GPU": -1}}, [{"GPU": 1}], "increase_by: GPU must be a number that is at least 0, got -1"),
        ({"increase_by": {"GPU": 0}}, [{"GPU": 1}], "increase_by must name something"),
        (
            {"reserve_resources": {"CPU": "2"}},
            [{"CPU": 1}],
            "reserve_resources: CPU must be a number that is at least 0, got '2'",
        ),
        ({"increase_by": {"CPU": 1}}, [{"GPU": 1}], "grow by GPU, which increase_by must contain"),
        ({}, [{"CPU": 1}, {"CPU": 1}], "with add_bundles=False a trial must have 1 bundle, got 2"),
    ],
)
def test_what_cannot_be_added_is_refused(given: dict[str, Any], resources: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        DistributeResources(**given).growth(tune.PlacementGroupFactory(resources))


def test_what_is_not_done_is_warned_of() -> None:
    base = tune.PlacementGroupFactory([{"GPU": 1}])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert isinstance(ResourceChangingScheduler(ASHAScheduler()).growth(base), Growth)
    with pytest.warns(
        UserWarning,
        match="a user-defined resources_allocation_function is not called, and trials keep their initial resources",
    ):
        assert ResourceChangingScheduler(None, lambda *_: None).growth(base) is None
    with pytest.warns(UserWarning, match="is None, so trials do not grow"):
        assert ResourceChangingScheduler(None, None).growth(base) is None
    with pytest.warns(UserWarning, match="to all running trials equally, .* not to the best first"):
        top = DistributeResourcesToTopJob(metric="loss", mode="min")
    assert isinstance(ResourceChangingScheduler(None, top).growth(base), Growth)


def test_a_run_of_before_goes_on() -> None:
    cluster: Any = Cluster(["v100"] * 4)
    plan = plan_of([{"GPU": 1}], ResourceChangingScheduler(), cluster)
    assert pickle.loads(pickle.dumps(plan)).growth == plan.growth
    old = pickle.loads(pickle.dumps(plan))
    del old.__dict__["growth"]
    assert needed(old, cluster).devices == 1


@pytest.mark.parametrize(
    ("resources", "devices"),
    [
        ({"gpu": 0.5}, 1),
        ({"cpu": 2, "gpu": 0.25}, 1),
        ({"gpu": 1.5}, 2),
        (tune.PlacementGroupFactory([{"CPU": 1}, {"GPU": 0.5}]), 1),
        (tune.PlacementGroupFactory([{"GPU": 0.75}, {"GPU": 0.75}]), 2),
    ],
)
def test_part_of_a_device_counts_as_a_whole_one_and_is_mentioned(resources: Any, devices: int) -> None:
    placement = placement_of(resources)
    cluster: Any = Cluster(["v100"] * 4)
    plan = Plan(print, "t", "", "t", {}, "loss", "min", placement, tune.CheckpointConfig())
    wanted = placement.required_resources["GPU"]
    with pytest.warns(UserWarning, match=f"devices are not shared by trials: {wanted:g} GPU counts as {devices}"):
        assert needed(plan, cluster).devices == devices


def test_whole_devices_and_parts_of_cores_are_not_mentioned() -> None:
    cluster: Any = Cluster(["v100"] * 4)
    for resources in ({"gpu": 2}, {"gpu": 1.0, "cpu": 0.5}, {"cpu": 0.5}):
        plan = Plan(print, "t", "", "t", {}, "loss", "min", placement_of(resources), tune.CheckpointConfig())
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert needed(plan, cluster).devices == max(1, resources.get("gpu", 1))


@pytest.mark.parametrize("devices", [0.5, 1.5, "0.5", "half", (0.5, 1), (1, 2.5), (1,), (1, 2, 3), None, True])
def test_resources_name_the_value_that_is_no_whole_device(devices: Any) -> None:
    with pytest.raises(TypeError, match="Resources: devices must be a whole count or ") as raised:
        ob.Resources(devices=devices).to_proto()
    assert repr(devices) in str(raised.value)
    part = devices in (0.5, 1.5, (0.5, 1), (1, 2.5))
    assert ("a trial has whole devices" in str(raised.value)) == part
