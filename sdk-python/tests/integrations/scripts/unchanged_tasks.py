"""An unchanged script for Ray, whose tasks and actor prepare data for trials."""

import ray
import ray.tune as tune
from ray.air import session
from ray.cloudpickle import dumps
from ray.tune.schedulers import ASHAScheduler
from ray.util import get_node_ip_address

if ray.is_initialized():
    ray.shutdown()
ray.init(num_cpus=2, ignore_reinit_error=True, include_dashboard=False)


@ray.remote
def rows(n):
    """Make data."""
    return list(range(n))


@ray.remote(num_cpus=0)
class Counter:
    """Counts."""

    def __init__(self):
        self.n = 0

    def add(self, k):
        """Add."""
        self.n += k
        return self.n


parts = [rows.remote(n) for n in (2, 3)]
counter = Counter.remote()
while parts:
    done, parts = ray.wait(parts)
    total = ray.get([counter.add.remote(len(part)) for part in ray.get(done)])[-1]
assert total == 5, total
reference = ray.put(list(range(total)))


def train(config):
    """Use data from `ray.put`, and a task."""
    data = ray.get(config["data"])
    for step in range(3):
        session.report({"loss": sum(data) * config["lr"] + ray.get(add.remote(step))})


@ray.remote
def add(step):
    """Return what a step adds."""
    return step


analysis = tune.run(
    train,
    config={"lr": tune.grid_search([1.0, 0.1]), "data": reference},
    scheduler=ASHAScheduler(max_t=3, grace_period=3),
    metric="loss",
    mode="min",
    verbose=0,
)
assert analysis.best_config["lr"] == 0.1 and analysis.best_result["loss"] == 3.0
assert [t.status for t in analysis.trials] == [ray.tune.experiment.Trial.TERMINATED] * 2


def shares(config):
    """Use the actor, which is not supported in trials."""
    counter.add.remote(1)
    tune.report({"n": 1})


try:
    tune.run(shares, verbose=0)
except Exception as error:
    assert "report its values" in str(error), error
else:
    raise AssertionError("an actor was taken into a trial")
assert len(dumps(reference)) < 1000 and get_node_ip_address() and len(ray.nodes()) == 1
ray.shutdown()
print("passed")
