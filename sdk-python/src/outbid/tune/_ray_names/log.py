"""Names of Ray's `tune.utils.log`."""

from __future__ import annotations

import enum
from typing import Any

from outbid.tune._absent_names import absent


class Verbosity(enum.IntEnum):
    """The amount of output: nothing, or Outbid's table."""

    V0_MINIMAL = 0
    V1_EXPERIMENT = 1
    V2_TRIAL_NORM = 2
    V3_TRIAL_DETAILS = 3


def __getattr__(name: str) -> Any:
    absent(__name__, name)


__all__ = ["Verbosity"]
