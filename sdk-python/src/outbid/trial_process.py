"""The program that runs training functions, `python -m outbid.trial_process`, which a worker starts.

The name is kept within a major version, because worker and SDK may have different versions. It connects to its worker
by the socket in OUTBID_STREAM and runs one trial after another until the worker ends it.
"""

from __future__ import annotations

import sys

from outbid._training.process import main

__all__ = ["main"]

if __name__ == "__main__":
    sys.exit(main())
