"""Source lines of code that is sent by value, because a worker's process cannot read a notebook's cell."""

from __future__ import annotations
import __future__

import ast
import functools
import json
import linecache
import zlib
from collections.abc import Iterable, Iterator
from types import CodeType

MAX_BYTES = 1 << 20
"""The maximum size of the source sent with a function; the longest files are left out first."""

_FUTURES = sum(getattr(__future__, name).compiler_flag for name in __future__.all_feature_names)

_shown: set[str] = set()  # the files whose lines `show` has added in this process


def gather(codes: Iterable[CodeType]) -> bytes:
    """Return the source files of code, for `show`, without those that no longer match the code."""
    files: dict[str, list[str]] = {}
    for name, parts in _by_file(codes).items():
        lines = _lines(parts)
        if lines and len("".join(lines)) <= MAX_BYTES and _made(name, lines, parts):
            files[name] = lines
    sent, size = {}, 0
    for name, lines in sorted(files.items(), key=lambda file: (len("".join(file[1])), file[0])):
        size += len("".join(lines))
        if size <= MAX_BYTES:
            sent[name] = lines
    return zlib.compress(json.dumps(sent, sort_keys=True).encode()) if sent else b""


def show(gathered: bytes) -> None:
    """Use these sources in the tracebacks of this process, instead of those of an earlier call."""
    files: dict[str, list[str]] = json.loads(zlib.decompress(gathered)) if gathered else {}
    for name in _shown:
        linecache.cache.pop(name, None)
    _shown.clear()
    for name, lines in files.items():
        # Without a modification time linecache does not compare the entry with a file on this machine.
        linecache.cache[name] = (sum(map(len, lines)), None, lines, name)
        _shown.add(name)


def _by_file(codes: Iterable[CodeType]) -> dict[str, list[CodeType]]:
    found: dict[str, list[CodeType]] = {}
    for code in codes:
        found.setdefault(code.co_filename, []).append(code)
    return found


def _lines(parts: list[CodeType]) -> list[str]:
    """Return the lines of code's file, or of the console input that it came from."""
    name = parts[0].co_filename
    linecache.checkcache(name)
    typed = getattr(linecache, "_getlines_from_code", None)  # the consoles of Python 3.13 and later
    return linecache.getlines(name) or (list(typed(parts[0])) if typed else [])


def _made(name: str, lines: list[str], parts: list[CodeType]) -> bool:
    """Return whether these lines compile to all of the code. The file may have been edited since it was imported."""
    futures = parts[0].co_flags & _FUTURES  # a cell has the future flags of the cells before it
    flags = futures | ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
    left = set(parts)
    try:
        left -= _compiled("".join(lines), name, flags)
        # A notebook compiles a cell's statements separately, which can result in different code.
        for statement in ast.parse("".join(lines), name).body if left else ():
            alone = ast.Module([statement], [])
            left.difference_update(_all_of(compile(alone, name, "exec", flags, dont_inherit=True)))
    except (SyntaxError, ValueError):
        return False
    return not left


@functools.lru_cache(maxsize=8)  # a program may send several functions of a file
def _compiled(text: str, name: str, flags: int) -> frozenset[CodeType]:
    return frozenset(_all_of(compile(text, name, "exec", flags, dont_inherit=True)))


def _all_of(code: CodeType) -> Iterator[CodeType]:
    yield code
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            yield from _all_of(inner)
