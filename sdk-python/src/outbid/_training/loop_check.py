"""Finds loops of a training function that nothing ends."""

from __future__ import annotations

import ast
import functools
import inspect
import textwrap
from typing import Any


def endless_steps(train: Any) -> bool:
    """Return whether a function has a loop over `steps()` that does not break, return or raise.

    Only the function's own source is examined. The result is False if that is not available.
    """
    while isinstance(train, functools.partial):
        train = train.func
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(train)))
    except (OSError, TypeError, SyntaxError):
        return False
    return any(isinstance(node, ast.For) and _over_steps(node.iter) and not _left(node.body) for node in ast.walk(tree))


def _over_steps(thing: ast.expr) -> bool:
    """Return whether an expression calls `something.steps()`, possibly inside enumerate or tqdm."""
    if not isinstance(thing, ast.Call):
        return False
    if isinstance(thing.func, ast.Attribute) and thing.func.attr == "steps" and not thing.args:
        return True
    wraps = isinstance(thing.func, ast.Name) and thing.func.id in ("enumerate", "tqdm")
    return wraps and bool(thing.args) and _over_steps(thing.args[0])


def _left(body: list[ast.stmt], *, inner: bool = False) -> bool:
    """Return whether statements can leave their loop or, with `inner`, the loop around it."""
    for node in body:
        if isinstance(node, (ast.Return, ast.Raise)) or (isinstance(node, ast.Break) and not inner):
            return True
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            continue
        loop = isinstance(node, (ast.For, ast.While, ast.AsyncFor))
        for name in ("body", "orelse", "finalbody"):
            if _left(getattr(node, name, []), inner=inner or (loop and name == "body")):
                return True
        for part in [*getattr(node, "handlers", []), *getattr(node, "cases", [])]:
            if _left(part.body, inner=inner):
                return True
    return False
