"""The base class of tuners that run another library's scheduler, whose objects are their state."""

from __future__ import annotations

import pickle
import random

import numpy as np

from outbid.plugin._tuner import Tuner


class Pickled(Tuner):
    """A tuner whose state is any objects, and that uses the random generators of Python and numpy."""

    def snapshot(self) -> bytes:
        """Return the state and the generators' states."""
        import cloudpickle

        blob: bytes = cloudpickle.dumps((self.state, random.getstate(), np.random.get_state()))
        return blob

    def restore(self, snapshot: bytes) -> None:
        """Restore a snapshot."""
        self.state, plain, of_numpy = pickle.loads(snapshot)
        random.setstate(plain)
        np.random.set_state(of_numpy)
