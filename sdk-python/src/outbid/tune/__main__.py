"""Runs an unchanged Ray Tune script on Outbid: `python -m outbid.tune script.py [arguments]`."""

from __future__ import annotations

import runpy
import sys

from outbid.tune._import_hook import pretend


def main() -> None:
    """Run the script named on the command line."""
    if len(sys.argv) < 2:
        sys.exit("usage: python -m outbid.tune SCRIPT [ARGUMENT...]: runs a Ray Tune script on Outbid")
    sys.argv = sys.argv[1:]
    pretend()
    sys.path.insert(0, str(__import__("pathlib").Path(sys.argv[0]).resolve().parent))
    runpy.run_path(sys.argv[0], run_name="__main__")


if __name__ == "__main__":
    main()
