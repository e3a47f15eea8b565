"""The program that draws with Optuna's samplers, `python -m outbid.plugin.optuna`, which a server starts.

The name is kept within a major version, because server and SDK may have different versions.
"""

from __future__ import annotations

from outbid.plugin._optuna import Sampler
from outbid.plugin._serve import serve

__all__ = ["Sampler"]

if __name__ == "__main__":
    serve(Sampler())
