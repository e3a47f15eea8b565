"""The check of server logs for panics and errors."""

from __future__ import annotations

from pathlib import Path

import pytest

from server_log import check_log


def test_a_panic_or_an_error_in_a_log_fails_the_test(tmp_path: Path) -> None:
    log = tmp_path / "server.log"
    check_log(log)
    log.write_text("time=2026-01-02T03:04:05Z level=INFO msg=ready\ntrial 3 says panic: not ours\n")
    check_log(log)
    for line in ("time=2026-01-02T03:04:05Z level=ERROR msg=x", "panic: x", "fatal error: x", "03:04:05 ERR x"):
        log.write_text(f"fine\n{line}\n")
        with pytest.raises(AssertionError, match=r"server\.log"):
            check_log(log)
