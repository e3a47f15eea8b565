"""The `__main__` module of processes that a trial starts by `multiprocessing` without forking.

It has the names of the user's script, which are loaded from the file of the trial's function on first access.
"""

import sys
from typing import Any

from outbid._core import function_pickle, main_module

main_module.in_child(function_pickle.main_of_trial)


def __getattr__(name: str) -> Any:
    """Return an attribute of the user's script."""
    main = sys.modules["__main__"].__dict__
    if not name.startswith("__") and "__outbid_read__" not in main:
        main["__outbid_read__"] = True
        main.update(function_pickle.main_of_trial())
        if name in main:
            return main[name]
    raise AttributeError(f"module '__main__' of the training function has no attribute {name!r}")
