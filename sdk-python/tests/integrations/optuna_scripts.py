"""Changes Optuna's scripts to run on Outbid."""

from __future__ import annotations

import re


def changed(script: str) -> tuple[str, int]:
    """Return an Optuna script that runs on Outbid, and the number of lines that were added or changed.

    One line is added, the import. Calls of `study.optimize` change as docs/guides/from-optuna.md says.
    """
    script, calls = re.subn(r"\b(\w*study)\.optimize\((?=\s*\w)", r"outbid.optuna.optimize(\1, ", script)
    if not calls:
        return script, 0
    script, imports = re.subn(r"^import optuna$", "import optuna\nimport outbid.optuna", script, count=1, flags=re.M)
    return script, calls + imports
