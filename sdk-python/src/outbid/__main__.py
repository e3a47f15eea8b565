"""`python -m outbid` runs the `outbid` binary that this package finds."""

from __future__ import annotations

import os
import sys

from outbid._client.local_server import find_binary


def main() -> None:
    """Replace this process with the binary, with the same arguments."""
    try:
        binary = find_binary()
    except FileNotFoundError as missing:
        sys.exit(f"outbid: {missing}")
    os.execv(binary, ["outbid", *sys.argv[1:]])


if __name__ == "__main__":
    main()
