"""Writes the SDK's tuner classes and the reference of tuners from sweep.proto. Usage: tuners.py DESCRIPTORS SDK DOCS.

DESCRIPTORS is a FileDescriptorSet with source info, SDK the folder of the package outbid, DOCS that of the reference.
"""

from __future__ import annotations

import importlib
import re
import sys
import textwrap
from pathlib import Path

from google.protobuf import descriptor_pb2

KINDS, PLUGIN = "Tuner", "plugin"
MODULE = "_search/tuner_classes"
MODULE_NAME = MODULE.replace("/", ".")
Field = descriptor_pb2.FieldDescriptorProto
WHOLE = (Field.TYPE_INT32, Field.TYPE_INT64)
HEAD = '''"""The classes of the built-in tuners. Written by `make gen` from proto/outbid/v1/sweep.proto; do not edit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

from outbid._core.name_hints import hinted_class
from outbid._search.tuners import Sampled, Sampler, Tuner
'''


class Setting:
    """One field of a tuner's message."""

    def __init__(self, field: Field, doc: str) -> None:
        from outbid.v1 import options_pb2

        self.name, self.field, self.doc = field.name, field, doc
        self.about = field.options.Extensions[options_pb2.setting]

    @property
    def type(self) -> str:
        """The type in Python."""
        words = [f'"{word}"' for word in self.about.words]
        if self.name == "sampler":
            own = [word for word in words if word not in ('"random"', '"sobol"', '"bayes"')]
            return f"Literal[{', '.join(own)}] | Sampler" if own else "Sampler"
        if words:
            return f"Literal[{', '.join(words)}]"
        one = {Field.TYPE_DOUBLE: "float", Field.TYPE_BOOL: "bool", Field.TYPE_STRING: "str"}.get(
            self.field.type, "int"
        )
        return f"Sequence[{one}]" if self.field.label == Field.LABEL_REPEATED else one

    @property
    def default(self) -> str:
        """The default in Python, or "" for a required setting."""
        if self.about.required:
            return ""
        text = self.about.default
        if self.field.label == Field.LABEL_REPEATED:
            return f"({text})"
        if self.field.type == Field.TYPE_STRING:
            return f'"{text}"'
        return text or ("False" if self.field.type == Field.TYPE_BOOL else "0")

    @property
    def zero(self) -> str:
        """The meaning of 0, or ""."""
        return f"for a {self.about.part}th of `max_steps`" if self.about.part else self.about.zero

    @property
    def values(self) -> str:
        """The allowed values, for the reference."""
        a, bounds = self.about, []
        if a.words:
            more = ["tpe", "gp", "cmaes", "nsga2"] if self.name == "sampler" else []
            return ", ".join([*a.words, *more])
        low = f"{a.min:g}" if a.HasField("min") else "1" if a.required else ""
        if low and a.HasField("max"):
            bounds = [f"from {low} to {a.max:.10g}"]
        else:
            bounds += [f"at least {low}"] if low else []
            bounds += [f"above {a.above:g}"] if a.HasField("above") else []
            bounds += [f"below {a.below:g}"] if a.HasField("below") else []
            bounds += [f"at most {a.max:.10g}"] if a.HasField("max") else []
        bounds += [f"at most `{a.at_most}`"] if a.at_most else []
        bounds = bounds or (["true or false"] if self.field.type == Field.TYPE_BOOL else [])
        return ", ".join([*bounds, *([f"0 {self.zero}"] if self.zero else [])])


class Kind:
    """A tuner: its name in a spec, its message, and the class of the SDK."""

    def __init__(
        self, name: str, message: descriptor_pb2.DescriptorProto, docs: dict[tuple[int, ...], str], at: int
    ) -> None:
        from outbid.v1 import options_pb2

        self.name, self.doc = name, docs.get((4, at), "")
        self.cls = message.options.Extensions[options_pb2.sdk_class]
        self.settings = [Setting(f, docs.get((4, at, 2, i), "")) for i, f in enumerate(message.field)]
        self.settings.sort(key=lambda s: not s.about.required)

    def code(self) -> str:
        """The class of the SDK."""
        base = "Sampled" if any(s.name == "sampler" for s in self.settings) else "Tuner"
        out = ["", "", "@hinted_class", "@dataclass(frozen=True)", f"class {self.cls}({base}):"]
        summary, _, rest = self.doc.partition("\n\n")
        summary, more = first_line(" ".join(summary.split()))
        paragraphs = [p for p in [more, *rest.split("\n\n")] if p.strip()]
        lines = [f'"""{summary}', ""]
        for p in paragraphs:
            lines += [*textwrap.wrap(" ".join(p.split()), 114), ""]
        for s in self.settings:
            doc = s.doc if not s.zero else f"{s.doc.rstrip('.')}; 0 {s.zero}."
            lines += textwrap.wrap(f"- `{s.name}`: {' '.join(doc.split())}", 114, subsequent_indent="  ")
        out += [("    " + line).rstrip() for line in [*lines, '"""']] + [""]
        for s in self.settings:
            out.append(f"    {s.name}: {s.type}" + (f" = {s.default}" if s.default else ""))
        return "\n".join([*out, "", f'    _kind: ClassVar[str] = "{self.name}"']) + "\n"

    def reference(self) -> str:
        """The section of the reference."""
        doc = "\n\n".join(" ".join(p.split()) for p in self.doc.split("\n\n"))
        rows = []
        for s in self.settings:
            default = "" if s.about.required else s.about.default or s.default
            meaning = " ".join(s.doc.split()).replace("|", "\\|")
            rows.append(f"| `{s.name}` | {f'`{default}`' if default else 'required'} | {s.values} | {meaning} |")
        table = ["| setting | default | values | meaning |", "|---|---|---|---|", *rows]
        return "\n".join([f"## {self.name}", "", doc, "", f"In Python: `ob.{self.cls}`.", "", *table]) + "\n"


def first_line(text: str) -> tuple[str, str]:
    """Split a paragraph after its first sentence if it is longer than a line."""
    if len(text) <= 112:
        return text, ""
    first, _, more = text.partition(". ")
    return f"{first}.", more


def read(path: str) -> list[Kind]:
    """Return the built-in tuners in the order of their fields."""
    importlib.import_module("outbid.v1.options_pb2")  # before the descriptors, whose options it declares
    files = descriptor_pb2.FileDescriptorSet.FromString(Path(path).read_bytes())
    (file,) = (f for f in files.file if f.name.endswith("/sweep.proto"))
    docs = {tuple(s.path): s.leading_comments.strip() for s in file.source_code_info.location if s.leading_comments}
    places = {m.name: i for i, m in enumerate(file.message_type)}
    kinds = []
    for field in file.message_type[places[KINDS]].field:
        at = places.get(field.type_name.rpartition(".")[2])
        if field.HasField("oneof_index") and not field.proto3_optional and field.name != PLUGIN and at is not None:
            kinds.append(Kind(field.name, file.message_type[at], docs, at))
    return kinds


def export(path: Path, names: list[str]) -> None:
    """Replace the names of the generated classes in the package's lists."""
    text = path.read_text()
    home = re.search(rf'"{MODULE_NAME}": \((.*?)\n    \),', text, re.S)
    before = set(re.findall(r'"(\w+)"', home[1])) if home else set()
    ordered = sorted(names, key=rank)
    block = "".join(f"        {n},\n" for n in ordered)
    text = re.sub(rf"(from outbid\.{MODULE_NAME} import \()\n.*?    \)", rf"\1\n{block}    )", text, flags=re.S)
    quoted = "".join(f'        "{n}",\n' for n in ordered)
    text = re.sub(rf'("{MODULE_NAME}": \()\n.*?    \),', rf"\1\n{quoted}    ),", text, flags=re.S)
    listed = re.search(r"\n__all__ = \[\n(.*?)\]", text, re.S)
    assert listed, path
    everything = (set(re.findall(r'"(\w+)"', listed[1])) - before) | set(names)
    block = "".join(f'    "{n}",\n' for n in sorted(everything, key=rank))
    path.write_text(text[: listed.start(1)] + block + text[listed.end(1) :])


def rank(name: str) -> tuple[int, str]:
    """Order names like the linter: constants, classes, others."""
    return (0 if name.isupper() else 1 if name[0].isupper() else 2, name)


def main() -> None:
    """Write the files."""
    descriptors, sdk, docs = sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3])
    sys.path.insert(0, str(sdk.parent))
    kinds = read(descriptors)
    (sdk / f"{MODULE}.py").write_text(HEAD + "".join(k.code() for k in kinds))
    export(sdk / "__init__.py", [k.cls for k in kinds])
    intro = (
        "# Tuners\n\nThe tuners that a spec's `tuner` may name, and their settings. Written by `make gen` from "
        "`proto/outbid/v1/sweep.proto`.\n[Tuners](../concepts/tuners.md) explains them and helps to choose one.\n\n"
    )
    (docs / "tuners.md").write_text(intro + "\n".join(k.reference() for k in kinds))


if __name__ == "__main__":
    main()
