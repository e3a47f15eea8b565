"""The layers of the package: which module imports which, anywhere in a file."""

from __future__ import annotations

import ast
from pathlib import Path

ROOT = Path(__file__).parents[1] / "src"

# From the bottom up: lower layers do not import higher ones.
LAYERS = [
    {"outbid._core.errors", "outbid._version"},
    {"outbid.rpc"},
    {"outbid._client.connection"},
    {"outbid._client.handle", "outbid._results.result"},
    {"outbid._client.client"},
    {"outbid._search.sweep"},
]


def modules() -> dict[str, Path]:
    """Return every module by name, except generated ones."""
    found = {}
    for path in sorted(ROOT.glob("outbid/**/*.py")):
        parts = path.relative_to(ROOT).with_suffix("").parts
        if "v1" not in parts:
            found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def imports(name: str, path: Path, known: set[str]) -> set[str]:
    """Return a module's imports from this package: at the top, for type checkers, and inside functions."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative imports are not followed here"
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                found.add(inner if inner in known else str(node.module))
    return {there for there in found if there in known and there != name}


def graph() -> dict[str, set[str]]:
    """Return the imports of each module."""
    known = modules()
    edges = {name: imports(name, path, set(known)) for name, path in known.items()}
    # `import outbid` in a string or in a package's loader is not a dependency.
    return {name: there for name, there in edges.items() if name not in ("outbid", "outbid.tune")}


def circles(edges: dict[str, set[str]]) -> list[list[str]]:
    """Return a path back to its start for every module that has one, the shortest first."""
    found = []
    for start in edges:
        paths, seen = [[start]], {start}
        while paths:
            path = paths.pop(0)
            if start in edges.get(path[-1], ()):
                found.append([*path, start])
                break
            new = sorted(edges.get(path[-1], set()) - seen)
            seen |= set(new)
            paths += [[*path, there] for there in new]
    return sorted(found, key=len)


def test_no_module_imports_itself_on_a_detour() -> None:
    found = circles(graph())
    assert not found, "circle: " + " -> ".join(found[0])


def test_circles_are_found_wherever_an_import_stands(tmp_path: Path) -> None:
    texts = {
        "outbid._a": "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from outbid._b import B\n",
        "outbid._b": "def f():\n    from outbid import _c\n",
        "outbid._c": "import outbid._a\n",
        "outbid._d": "from outbid import _a\n",
    }
    edges = {}
    for name, text in texts.items():
        path = tmp_path / f"{name}.py"
        path.write_text(text)
        edges[name] = imports(name, path, set(texts))
    assert {path[0] for path in circles(edges)} == {"outbid._a", "outbid._b", "outbid._c"}


def test_no_layer_knows_one_above() -> None:
    edges = graph()
    reach: dict[str, set[str]] = {}
    for name in edges:
        todo, seen = [name], set()
        while todo:
            for there in edges.get(todo.pop(), ()):
                if there not in seen:
                    seen.add(there)
                    todo.append(there)
        reach[name] = seen
    for height, layer in enumerate(LAYERS):
        above = set().union(*LAYERS[height + 1 :])
        for name in layer:
            assert name in reach, f"there is no module {name} any more"
            assert not reach[name] & above, f"{name} stands on {reach[name] & above}, which is above it"


def test_the_package_itself_is_imported_by_no_module() -> None:
    lists = ("outbid.errors", "outbid.types")  # public lists of the package's own names, which no module imports
    for name, there in graph().items():
        assert not set(lists) & there, f"{name} imports a list of public names: import the module that has them"
        assert "outbid" not in there or name in lists, (
            f"{name} imports the package's public names: import the module that has them"
        )
