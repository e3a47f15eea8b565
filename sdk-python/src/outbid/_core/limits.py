"""Maximum sizes, in bytes, of data sent by users' code. The worker and the server check the same limits."""

from __future__ import annotations

import re
import zlib
from collections.abc import Mapping
from typing import Any, Final

from outbid._core import validation
from outbid.v1 import event_pb2

REPORT: Final = 60 << 10
"""Bounds one encoded report: its metrics, attributes, and the other fields."""

NAME: Final = 256
"""Bounds the name of a metric or an attribute."""

LABEL_NAME: Final = 63
"""Bounds the name of a label."""

LABEL: Final = 1024
"""Bounds the value of a label."""

LABELS: Final = 16 << 10
"""Bounds the names and values of all labels together."""

LABEL_COUNT: Final = 64
"""The maximum number of labels of a sweep."""

_AROUND: Final = 100  # bytes of a report besides metrics and attributes: numbers and times
_ALLOWED: Final = "\n\t"
_BIDIRECTIONAL: Final = frozenset("\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")


def check_name(where: str, what: str, name: Any) -> str:
    """Return a valid name. Raises TypeError if it is not a string, ValueError if it is too long or not valid text."""
    if not isinstance(name, str) or not name:
        raise TypeError(f"{where}: {what} must be a string, got {name!r}")
    if name.isascii() and name.isprintable() and len(name) <= NAME:  # the fast path for nearly all names
        return name
    try:
        size = len(name.encode())
    except UnicodeEncodeError:
        raise ValueError(f"{where}: {what} must be text, got {name!r:.80}") from None
    if size > NAME:
        raise ValueError(f"{where}: {what} has {size:,} bytes, at most {NAME} are allowed: {name[:40]!r}...")
    for character in name:
        control = ord(character) < 0x20 or 0x7F <= ord(character) < 0xA0
        if (control and character not in _ALLOWED) or character in _BIDIRECTIONAL:
            raise ValueError(f"{where}: {what} must not have the control character {character!a}, got {name!a:.80}")
    return name


def sent_name(name: str, most: int = NAME) -> str:
    """Return a name as the server takes it, in at most `most` bytes: no other name is sent as the same one."""
    if name.isprintable() and len(name.encode()) <= most:
        return name
    return f"{re.sub(r'[^A-Za-z0-9_./-]', '_', name)[:90]}-{zlib.crc32(name.encode()):08x}"


def check_labels(where: str, labels: Mapping[Any, Any]) -> dict[str, str]:
    """Return labels as text. Raises ValueError that names the label that is too large, its size and the limit."""
    found = {}
    for name, value in labels.items():
        name, value = str(name), str(value)
        found[name] = validation.text(f"{where}[{name[:40]!r}]", value)
        for what, text, most in (("name", name, LABEL_NAME), ("value", value, LABEL)):
            if (size := len(validation.text(where, text).encode())) > most:
                raise ValueError(f"{where}: the {what} of {name[:40]!r} has {size:,} bytes, at most {most} are allowed")
    if len(found) > LABEL_COUNT:
        raise ValueError(f"{where}: {len(found)} labels are too many, at most {LABEL_COUNT} are allowed")
    if (size := sum(len(name.encode()) + len(value.encode()) for name, value in found.items())) > LABELS:
        raise ValueError(f"{where}: names and values have {size:,} bytes together, at most {LABELS:,} are allowed")
    return found


def room(report: event_pb2.Report) -> int:
    """Return how many more bytes a report may have; negative if it is too large."""
    return REPORT - _AROUND - report.ByteSize()


def check_report(where: str, report: event_pb2.Report) -> None:
    """Raise ValueError if a report is too large, naming its largest part."""
    left = room(report)
    if left >= 0:
        return
    allowed = REPORT - _AROUND
    notes = {name: len(text.encode()) for name, text in report.attributes.items()}
    if notes and (size := max(notes.values())) > allowed // 2:
        name = max(notes, key=lambda n: notes[n])
        raise ValueError(
            f"{where}: {name!r:.80} has {size:,} bytes as JSON, but a report is limited to {allowed:,} bytes: "
            "save large data in the checkpoint"
        )
    raise ValueError(
        f"{where}: {len(report.metrics)} metrics and {len(notes)} notes have {allowed - left:,} bytes, but a "
        f"report is limited to {allowed:,} bytes"
    )
