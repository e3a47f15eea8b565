"""Training loops of Lightning, Transformers and Keras are paused and continue from their checkpoints.

These packages need torch and are not in any environment of the project: if one is missing, its test is skipped.
"""

from __future__ import annotations

from typing import Any

import pytest

import outbid as ob

EPOCHS = 6


def _data() -> Any:
    import torch

    x = torch.randn(64, 4, generator=torch.Generator().manual_seed(0))
    return x, x.sum(1, keepdim=True)


def lightning(trial: ob.Trial) -> None:
    """Fit a line with Lightning."""
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
        max_epochs=EPOCHS - trial.start_step,
        callbacks=[ob.callbacks.lightning(trial)],
        enable_progress_bar=False,
        logger=False,
        enable_checkpointing=False,
        accelerator="cpu",
    ).fit(line, DataLoader(TensorDataset(*_data()), batch_size=16))


def keras(trial: ob.Trial) -> None:
    """Fit a line with Keras."""
    import os

    os.environ["KERAS_BACKEND"] = "torch"
    import keras

    line = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
    line.compile(optimizer=keras.optimizers.SGD(trial.config.lr), loss="mse")
    ob.callbacks.load_keras(trial, line)
    x, y = _data()
    fit = {"epochs": EPOCHS, "initial_epoch": trial.start_step, "verbose": 0}
    line.fit(x.numpy(), y.numpy(), callbacks=[ob.callbacks.keras(trial)], **fit)


def transformers(trial: ob.Trial) -> None:
    """Fit a line with Transformers' Trainer."""
    import torch
    from transformers import Trainer, TrainingArguments

    class Line(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.line = torch.nn.Linear(4, 1)

        def forward(self, x: Any, labels: Any) -> Any:
            out = self.line(x)
            return {"loss": ((out - labels) ** 2).mean(), "logits": out}

    line = Line()
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
    told = [ob.callbacks.transformers(trial)]
    Trainer(line, arguments, train_dataset=data, eval_dataset=data, callbacks=told).train()


@pytest.mark.parametrize(
    ("train", "metric"),
    [(lightning, "loss"), (keras, "loss"), (transformers, "eval_loss")],
    ids=["lightning", "keras", "transformers"],
)
def test_a_training_loop_goes_on_from_what_it_saved(
    real: ob.Client, train: Any, metric: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KERAS_BACKEND", "torch")
    pytest.importorskip("torch")
    pytest.importorskip(train.__name__)
    tuner = ob.ASHA(max_steps=EPOCHS, min_steps=2, eta=2, seed=0)
    space = {"lr": ob.loguniform(1e-3, 0.3)}
    result = ob.Sweep(train, space, metric=metric, mode="min", tuner=tuner, trials=4).run(
        client=real, display=False, timeout=500
    )
    states = [trial.state for trial in result.trials]
    assert set(states) <= {"completed", "pruned"} and "completed" in states, [t.reason for t in result.trials]
    gone_on = [trial for trial in result.trials if trial.resumes]
    assert gone_on, "no trial was paused and went on"
    for trial in gone_on:
        values = [r.metrics[metric] for r in result.reports() if r.trial == trial.number]
        assert len(values) == trial.step and values[2] < values[0], "it went on from a fresh start"
