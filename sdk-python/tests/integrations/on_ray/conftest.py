"""The Ray cluster of all tests here, because starting another takes as long as some tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from integrations.on_ray.cluster import ENVIRONMENT, RayCluster


@pytest.fixture(scope="package")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RayCluster]:
    """Start a head and a node with two CPUs and two pretended GPUs, and connect to it."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in ENVIRONMENT.items():
            patch.setenv(name, value)
        # contains the data of servers without a `data` directory
        patch.setenv("HOME", str(tmp_path_factory.mktemp("home")))
        import ray

        # Another test may have imported Ray before.
        patch.setattr("ray._private.ray_constants.ENABLE_RAY_CLUSTER", False)
        made = RayCluster()
        try:
            made.add(2, gpus=2)
            ray.init(address=made.address, log_to_driver=False)
            yield made
        finally:
            ray.shutdown()
            made.end()
