"""The base of tuners that run another library's scheduler: its objects are their state."""

from __future__ import annotations

import pickle
import random

import numpy as np

from outbid.plugin._tuner import Tuner


class Pickled(Tuner):
    """A tuner whose state is any objects, and who draws from the generators of Python and numpy."""

    def snapshot(self) -> bytes:
        """Return everything, randomness included."""
        import cloudpickle

        blob: bytes = cloudpickle.dumps((self.state, random.getstate(), np.random.get_state()))
        return blob

    def restore(self, snapshot: bytes) -> None:
        """Take up a snapshot."""
        self.state, plain, of_numpy = pickle.loads(snapshot)
        random.setstate(plain)
        np.random.set_state(of_numpy)
