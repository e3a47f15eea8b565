"""The cluster of Ray's that all tests here use: another would take as long to start as some of them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from integrations.on_ray.cluster import ENVIRONMENT, RayCluster


@pytest.fixture(scope="package")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RayCluster]:
    """Start a head and a node of two CPUs, and of two GPUs as Ray is told; the tests are connected to it."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in ENVIRONMENT.items():
            patch.setenv(name, value)
        patch.setenv("HOME", str(tmp_path_factory.mktemp("home")))  # where servers keep what they are told no place for
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
