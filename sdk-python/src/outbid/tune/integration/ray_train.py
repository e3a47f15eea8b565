"""Ray Train's trainers within Tune, which are not supported."""

from __future__ import annotations

from typing import Any

from outbid.tune._errors import unsupported


class TuneReportCallback:
    """Not supported."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        unsupported(
            "integration.ray_train", "tune a function that trains on its trial's devices, and tune.report in it"
        )
