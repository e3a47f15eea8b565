"""Gangs of two processes on one node with the libraries that the guide "From one GPU to many" names, on processors.

These packages are not in any environment of the project: if one is missing, its test is skipped.
"""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

import outbid as ob

GUIDE = Path(__file__).resolve().parents[3] / "docs" / "guides" / "many-gpus.md"
EPOCHS = 3
RANKS = 2


def _line(inputs: int = 4) -> Any:
    import torch

    class Line(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.line = torch.nn.Linear(inputs, 1)

        def forward(self, x: Any, labels: Any = None) -> Any:
            out = self.line(x)
            return out if labels is None else {"loss": ((out - labels) ** 2).mean(), "logits": out}

    return Line()


def _data() -> Any:
    import torch

    x = torch.randn(64, 4, generator=torch.Generator().manual_seed(0))
    return x, x.sum(1, keepdim=True)


def _agree(trial: ob.Trial, module: Any) -> None:
    """Check that all ranks have the same weights, and note the sum in rank 0."""
    import torch
    from torch import distributed

    weights = torch.cat([p.detach().flatten() for p in module.parameters()])
    all_weights = [torch.empty_like(weights) for _ in range(trial.world_size)]
    distributed.all_gather(all_weights, weights)
    assert distributed.get_world_size() == trial.world_size == RANKS
    assert all(torch.equal(weights, other) for other in all_weights), "ranks have different weights"


def torch(trial: ob.Trial) -> None:
    """Train with DistributedDataParallel."""
    from torch import distributed, optim
    from torch.nn.parallel import DistributedDataParallel

    distributed.init_process_group()
    model = DistributedDataParallel(_line())
    ob.callbacks.load_torch(trial, model.module)
    optimizer = optim.SGD(model.parameters(), lr=trial.config.lr)
    x, y = (part[trial.rank :: trial.world_size] for part in _data())
    for _step in trial.steps():
        optimizer.zero_grad()
        loss = ((model(x) - y) ** 2).mean()
        loss.backward()
        optimizer.step()
        trial.save(model.module)
        trial.report(loss=loss, reduce="mean")
    _agree(trial, model.module)
    distributed.destroy_process_group()


def fsdp(trial: ob.Trial) -> None:
    """Train with weights that are divided between the ranks."""
    import torch
    from torch import distributed
    from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict, set_model_state_dict
    from torch.distributed.fsdp import fully_shard

    distributed.init_process_group()
    mesh = distributed.init_device_mesh("cpu", (trial.world_size,))
    model = _line()
    fully_shard(model, mesh=mesh)
    whole = StateDictOptions(full_state_dict=True, cpu_offload=True)
    if (start := trial.checkpoint()) is not None:
        set_model_state_dict(model, {k: torch.from_numpy(v.copy()) for k, v in start.items()}, options=whole)
    optimizer = torch.optim.SGD(model.parameters(), lr=trial.config.lr)
    x, y = (part[trial.rank :: trial.world_size] for part in _data())
    for _step in trial.steps():
        optimizer.zero_grad()
        loss = ((model(x) - y) ** 2).mean()
        loss.backward()
        optimizer.step()
        if trial.save_due:
            trial.save(get_model_state_dict(model, options=whole))
        trial.report(loss=loss, reduce="mean")
    distributed.destroy_process_group()


def fsdp_shards(trial: ob.Trial) -> None:
    """Train with weights that every rank saves a part of, and fail once."""
    import torch
    from torch import distributed
    from torch.distributed import checkpoint as dcp
    from torch.distributed.checkpoint.state_dict import get_model_state_dict, set_model_state_dict
    from torch.distributed.fsdp import fully_shard

    distributed.init_process_group()
    model = _line(inputs=4)
    fully_shard(model, mesh=distributed.init_device_mesh("cpu", (trial.world_size,)))
    if folder := trial.checkpoint():
        state = get_model_state_dict(model)
        dcp.load(state, checkpoint_id=folder)
        set_model_state_dict(model, state)
    optimizer = torch.optim.SGD(model.parameters(), lr=trial.config.lr)
    x, y = (part[trial.rank :: trial.world_size] for part in _data())
    for step in trial.steps():
        optimizer.zero_grad()
        loss = ((model(x) - y) ** 2).mean()
        loss.backward()
        optimizer.step()
        if trial.save_due:
            folder = trial.scratch / f"step-{step}"
            dcp.save(get_model_state_dict(model), checkpoint_id=folder)
            trial.save(folder, {"step": step}, sharded=True)
        if trial.start_step == 0 and step > 20 * EPOCHS:
            raise RuntimeError("the first attempt fails")
        trial.report(loss=loss, reduce="mean")
    distributed.destroy_process_group()


def lightning(trial: ob.Trial) -> None:
    """Train with Lightning's ddp."""
    import lightning
    import torch
    from torch.utils.data import DataLoader, TensorDataset

    class Line(lightning.LightningModule):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.line = torch.nn.Linear(4, 1)

        def training_step(self, batch: Any, index: int) -> Any:
            loss = ((self.line(batch[0]) - batch[1]) ** 2).mean()
            self.log("loss", loss)
            return loss

        def configure_optimizers(self) -> Any:
            return torch.optim.SGD(self.parameters(), lr=trial.config.lr)

    line = Line()
    ob.callbacks.load_torch(trial, line)
    lightning.Trainer(
        devices=trial.world_size,
        num_nodes=1,
        strategy="ddp",
        max_epochs=EPOCHS - trial.start_step,
        callbacks=[ob.callbacks.lightning(trial)],
        enable_progress_bar=False,
        logger=False,
        enable_checkpointing=False,
        accelerator="cpu",
    ).fit(line, DataLoader(TensorDataset(*_data()), batch_size=16))
    _agree(trial, line)


def transformers(trial: ob.Trial) -> None:
    """Train with Transformers' Trainer, which uses Accelerate."""
    from transformers import Trainer, TrainingArguments

    line = _line()
    ob.callbacks.load_torch(trial, line)
    data = [{"x": x, "labels": y} for x, y in zip(*_data(), strict=True)]
    arguments = TrainingArguments(
        str(trial.scratch),
        num_train_epochs=EPOCHS - trial.start_step,
        eval_strategy="epoch",
        learning_rate=trial.config.lr,
        report_to=[],
        save_strategy="no",
        disable_tqdm=True,
        use_cpu=True,
    )
    told = [ob.callbacks.transformers(trial, metric={"loss": "eval_loss"})]
    Trainer(line, arguments, train_dataset=data, eval_dataset=data, callbacks=told).train()
    _agree(trial, line)


def accelerate(trial: ob.Trial) -> None:
    """Train with a loop of Accelerate."""
    import torch
    from accelerate import Accelerator
    from torch.utils.data import DataLoader, TensorDataset

    accelerator = Accelerator(cpu=True)
    line = _line()
    ob.callbacks.load_torch(trial, line)
    optimizer = torch.optim.SGD(line.parameters(), lr=trial.config.lr)
    loader = DataLoader(TensorDataset(*_data()), batch_size=16)
    model, optimizer, loader = accelerator.prepare(line, optimizer, loader)
    for _step in trial.steps():
        for x, y in loader:
            optimizer.zero_grad()
            loss = ((model(x) - y) ** 2).mean()
            accelerator.backward(loss)
            optimizer.step()
        trial.save(accelerator.unwrap_model(model))
        trial.report(loss=loss, reduce="mean")
    _agree(trial, accelerator.unwrap_model(model))
    accelerator.end_training()


def jax(trial: ob.Trial) -> None:
    """Add numbers of all processes with JAX."""
    import jax
    from jax.experimental import multihost_utils

    address = f"{os.environ['MASTER_ADDR']}:{os.environ['MASTER_PORT']}"
    jax.distributed.initialize(address, trial.world_size, trial.rank)
    start = trial.checkpoint()
    w = float(start["w"]) if start is not None else 8.0
    for _step in trial.steps():
        parts = multihost_utils.process_allgather(jax.numpy.float32(w * trial.config.lr * (trial.rank + 1)))
        w -= float(parts.sum()) / 3
        trial.save({"w": jax.numpy.float32(w)})
        trial.report(loss=w, reduce="mean")


@pytest.mark.parametrize(
    "train", [torch, fsdp, lightning, transformers, accelerate, jax], ids=lambda train: str(train.__name__)
)
def test_two_processes_train(real: ob.Client, train: Any) -> None:
    pytest.importorskip("torch" if train is fsdp else train.__name__)
    sweep = ob.Sweep(
        train,
        {"lr": ob.choice([0.01])},
        metric="loss",
        mode="min",
        tuner=ob.Random(max_steps=EPOCHS, seed=0),
        trials=1,
        resources=ob.Resources(devices=RANKS, processes="per_device"),
        max_restarts=0,
        env={"OMP_NUM_THREADS": "1", "JAX_PLATFORMS": "cpu"},
    )
    result = sweep.run(client=real, display=False, timeout=500)
    (trial,) = result.trials
    assert trial.state == "completed" and trial.step == EPOCHS, trial.reason
    values = [report.metrics["loss"] for report in result.reports()]
    assert len(values) == EPOCHS and values[-1] < values[0]


@pytest.mark.filterwarnings("ignore:torch.distributed is disabled")  # one process reads the shards
def test_shards_of_fsdp(real: ob.Client) -> None:
    """A second attempt continues from the shards of the first, and one process reads those of the last step."""
    pytest.importorskip("torch")
    import torch
    from torch.distributed import checkpoint as dcp

    steps = 40 * EPOCHS
    sweep = ob.Sweep(
        fsdp_shards,
        {"lr": ob.choice([0.01])},
        metric="loss",
        mode="min",
        tuner=ob.Random(max_steps=steps, seed=0),
        trials=1,
        resources=ob.Resources(devices=RANKS, processes="per_device"),
        checkpoints=ob.Checkpoints(last=True, every="1ms"),
        max_restarts=1,
        env={"OMP_NUM_THREADS": "1"},
    )
    result = sweep.run(client=real, display=False, timeout=500)
    (trial,) = result.trials
    assert trial.state == "completed" and trial.step == steps, trial.reason
    values = {report.step: report.metrics["loss"] for report in result.reports()}
    assert len(values) == steps and values[steps] < values[1]
    folder = trial.checkpoint(steps)
    assert trial.metadata(steps) == {"step": steps}
    assert {".metadata", "__0_0.distcp", "__1_0.distcp"} <= {file.name for file in folder.iterdir()}
    model = _line()
    state = model.state_dict()
    dcp.load(state, checkpoint_id=folder)
    model.load_state_dict(state)
    x, y = _data()
    with torch.no_grad():
        loss = float(((model(x) - y) ** 2).mean())
    assert loss <= values[steps]
    shutil.rmtree(folder)


def test_the_example_of_the_guide(real: ob.Client) -> None:
    pytest.importorskip("torch")
    example = re.findall(r"```python\n(.*?)```", GUIDE.read_text(), re.DOTALL)[0]
    for printed, tested in {"devices=8": f"devices={RANKS}", "trials=10": "trials=2"}.items():
        assert printed in example
        example = example.replace(printed, tested)
    names: dict[str, Any] = {"__name__": "guide"}
    exec(example, names)
    result = names["sweep"].run(client=real, display=False, timeout=500)
    assert [trial.state for trial in result.trials] == ["completed"] * 2, [t.reason for t in result.trials]
    assert len(result.reports()) == 2 * 20
