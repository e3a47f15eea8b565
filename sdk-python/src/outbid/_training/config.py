"""Config: a configuration with attribute access."""

from __future__ import annotations

import json
from typing import Any


class Config(dict[str, Any]):
    """A configuration: a dict whose entries are also attributes, so `config.lr` is `config["lr"]`."""

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            raise AttributeError(f"the configuration has no {name!r}; it has {', '.join(self) or 'nothing'}") from None


def parse_config(text: str) -> Config:
    """Parse a configuration in canonical JSON text: whole numbers are ints, groups are nested Configs."""
    config: Config = json.loads(text or "{}", object_hook=Config)
    return config
