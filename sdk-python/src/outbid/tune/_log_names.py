"""Names of Ray's `tune.utils.log`."""

from __future__ import annotations

import enum


class Verbosity(enum.IntEnum):
    """How much is shown: nothing, or Outbid's table."""

    V0_MINIMAL = 0
    V1_EXPERIMENT = 1
    V2_TRIAL_NORM = 2
    V3_TRIAL_DETAILS = 3


__all__ = ["Verbosity"]
