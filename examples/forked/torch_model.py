"""A sixth model, in torch: a small convolutional network for digits, trained by Adam. It does not use Outbid.

It needs `pip install outbid[torch]`. Its checkpoint is a dict of arrays like that of the models in numpy: weights, and
Adam's moments and counters.
"""

from __future__ import annotations

import numpy as np
import torch


class Convolution:
    """Two convolutions and a linear layer for images of 8x8, with the interface of `models.train_step`."""

    def __init__(self, x: np.ndarray, y: np.ndarray, settings: dict, seed: int):
        torch.set_num_threads(1)
        rng = np.random.default_rng(1000 + seed)
        order = rng.permutation(len(x))
        held = len(x) // 4
        images, digits = torch.tensor(x.reshape(-1, 1, 8, 8), dtype=torch.float32), torch.tensor(y)
        self.x, self.y = images[order[held:]], digits[order[held:]]
        self.x_held, self.y_held = images[order[:held]], digits[order[:held]]
        self.settings = settings
        torch.manual_seed(seed)
        self.net = torch.nn.Sequential(
            torch.nn.Conv2d(1, 8, 3, padding=1),
            torch.nn.ReLU(),
            torch.nn.Conv2d(8, 16, 3, stride=2, padding=1),
            torch.nn.ReLU(),
            torch.nn.Flatten(),
            torch.nn.Linear(16 * 4 * 4, 10),
        )
        self.adam = torch.optim.Adam(self.net.parameters(), settings["lr"])
        for p in self.net.parameters():  # so that the moments exist from the beginning
            self.adam.state[p] = {
                "step": torch.tensor(0.0),
                "exp_avg": torch.zeros_like(p),
                "exp_avg_sq": torch.zeros_like(p),
            }

    @property
    def samples(self) -> int:
        """The number of samples for training."""
        return len(self.x)

    def _tensors(self) -> dict[str, torch.Tensor]:
        found = {f"net.{name}": p.data for name, p in self.net.named_parameters()}
        for name, p in self.net.named_parameters():
            for moment, value in self.adam.state[p].items():
                found[f"optimizer.{name}.{moment}"] = value
        return found

    @property
    def state(self) -> dict[str, np.ndarray]:
        """Weights, moments and counters, which are also the checkpoint."""
        return {name: tensor.numpy().copy() for name, tensor in self._tensors().items()}

    @state.setter
    def state(self, arrays: dict[str, np.ndarray]) -> None:
        for name, tensor in self._tensors().items():
            tensor.copy_(torch.from_numpy(np.array(arrays[name], np.float32).reshape(tensor.shape)))

    def gradients(self, rows: np.ndarray) -> dict[str, np.ndarray]:
        """Return the gradient of the loss on some samples, by the name of the weight."""
        rows = torch.from_numpy(rows)
        self.net.zero_grad()
        torch.nn.functional.cross_entropy(self.net(self.x[rows]), self.y[rows]).backward()
        return {name: p.grad.numpy() for name, p in self.net.named_parameters()}

    def apply(self, gradients: dict[str, np.ndarray]) -> None:
        """Take one step of Adam."""
        for name, p in self.net.named_parameters():
            p.grad = torch.from_numpy(gradients[name])
        self.adam.step()

    def quality(self) -> float:
        """Return the error rate on held-out data."""
        with torch.no_grad():
            return float((self.net(self.x_held).argmax(1) != self.y_held).float().mean())
