"""Adds the `outbid` binary to the wheel, and its Go source code to the source distribution.

OUTBID_WHEEL_LICENCES is the path of a file with the licences of the binary's Go modules, for the wheel's metadata.
OUTBID_WHEEL_BINARY is the path of a binary to use, for this machine or another. "none" leaves the binary out, for
clients of remote servers. Otherwise the binary is built with Go. The wheel's tag gives the platform that the binary
needs.
"""

from __future__ import annotations

import os
import shutil
import stat
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

SOURCES = ("go.mod", "go.sum", "main.go", "VERSION", "LICENSE", "orchestrator", "worker", "proto")
WITHOUT_GO = (
    "outbid: building the `outbid` binary needs Go 1.26 or later, but `go` was not found in PATH.\n"
    "  Install Go from https://go.dev/dl, or\n"
    "  install a wheel that contains the binary: pip install --only-binary outbid outbid, or\n"
    "  set OUTBID_WHEEL_BINARY to the path of a binary, or to none for a client without one."
)


class BinaryHook(BuildHookInterface):  # type: ignore[type-arg]
    """The build hook for the wheel and the source distribution."""

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Add the files to the build. An editable install uses the binary from `make build` instead."""
        if self.target_name == "sdist":
            build_data["force_include"].update(self._sources())
        elif version != "editable" and (binary := self._binary()) is not None:
            binary.chmod(binary.stat().st_mode | stat.S_IXUSR | stat.S_IXGRP | stat.S_IXOTH)
            build_data["shared_scripts"][str(binary)] = "outbid"
            if licences := os.environ.get("OUTBID_WHEEL_LICENCES"):
                build_data["extra_metadata"][licences] = Path(licences).name
            build_data["pure_python"] = False
            build_data["tag"] = f"py3-none-{platform_of(binary)}"

    def _top(self) -> Path | None:
        """Return the directory of the Go module: in a source distribution, or above this one in a checkout."""
        here = Path(self.root)
        return next((place for place in (here / "go", here.parent) if (place / "main.go").exists()), None)

    def _sources(self) -> dict[str, str]:
        top = self._top()
        if top is None:
            self.app.abort(
                "outbid: the Go code was not found: build the source distribution in a checkout of the repository"
            )
            return {}
        files = [
            file for name in SOURCES for file in ([top / name] if (top / name).is_file() else (top / name).rglob("*"))
        ]
        return {
            str(file): f"go/{file.relative_to(top).as_posix()}"
            for file in files
            if file.is_file()
            and not file.name.endswith("_test.go")
            and not {"testdata", "node_modules"} & {*file.parts}
        }

    def _binary(self) -> Path | None:
        named = os.environ.get("OUTBID_WHEEL_BINARY", "")
        if named == "none":
            return None
        if named:
            if not Path(named).is_file():
                self.app.abort(f"outbid: OUTBID_WHEEL_BINARY is {named!r}, which is not a file")
            # Copy it because hatchling takes the mode from the file, and initialize() changes it.
            binary = Path(self.directory) / ".binary" / "outbid"
            binary.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(named, binary)
            return binary
        return self._build()

    def _build(self) -> Path:
        top, go = self._top(), shutil.which("go")
        if top is None:
            self.app.abort(
                "outbid: the Go code was not found; set OUTBID_WHEEL_BINARY to the path of a binary, or to none"
            )
        if go is None:
            self.app.abort(WITHOUT_GO)
        env = {"CGO_CFLAGS": "-O2 -Wno-deprecated-declarations", **os.environ}
        if not any(map(shutil.which, (os.environ.get("CC", "cc"), "gcc", "clang"))):
            print("outbid: no C compiler: the binary will find no NVIDIA GPUs", file=sys.stderr)
            env["CGO_ENABLED"] = "0"
        binary = Path(self.directory) / ".binary" / "outbid"
        flags = ["-trimpath", "-buildvcs=false", "-ldflags", "-s -w"]
        done = subprocess.run([str(go), "build", *flags, "-o", str(binary), "."], cwd=top, env=env, check=False)
        if done.returncode != 0:
            self.app.abort("outbid: the binary could not be built; see Go's output above")
        return binary

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Remove the copy of the binary; the wheel contains it."""
        shutil.rmtree(Path(self.directory) / ".binary", ignore_errors=True)


def platform_of(binary: Path) -> str:
    """Return the platform tag of a binary: the machine, and the oldest libc or macOS that it can run on."""
    with binary.open("rb") as file:
        magic = file.read(4)
    if magic == b"\x7fELF":
        return _linux(binary)
    if magic == b"\xcf\xfa\xed\xfe":
        return _macos(binary)
    raise ValueError(f"{binary} is not a program for Linux or macOS")


GLIBC = {"libc.so.6", "libdl.so.2", "libm.so.6", "libpthread.so.0", "libresolv.so.2", "librt.so.1"}
LOADERS = {"ld-linux-x86-64.so.2", "ld-linux-aarch64.so.1"}


def _linux(binary: Path) -> str:
    from elftools.elf.dynamic import DynamicSection
    from elftools.elf.elffile import ELFFile
    from elftools.elf.gnuversions import GNUVerNeedSection

    least = (2, 17)  # the oldest version that has a tag and that Go supports
    with binary.open("rb") as file:
        elf = ELFFile(file)
        machine = {"EM_X86_64": "x86_64", "EM_AARCH64": "aarch64"}[elf["e_machine"]]
        needed: set[str] = set()
        for section in elf.iter_sections():
            if isinstance(section, DynamicSection):
                needed |= {tag.needed for tag in section.iter_tags() if tag.entry.d_tag == "DT_NEEDED"}
            if isinstance(section, GNUVerNeedSection):
                for _, symbols in section.iter_versions():
                    for symbol in symbols:
                        library, _, version = symbol.name.partition("_")
                        if library != "GLIBC" or version == "PRIVATE":
                            raise ValueError(f"{binary} needs {symbol.name}, which no platform tag guarantees")
                        least = max(least, tuple(map(int, version.split(".")))[:2])
    if odd := needed - GLIBC - LOADERS:
        raise ValueError(f"{binary} needs {', '.join(sorted(odd))}, which are missing on some machines")
    if not needed:
        return f"manylinux_2_17_{machine}.manylinux2014_{machine}.musllinux_1_1_{machine}"
    alias = f".manylinux2014_{machine}" if least == (2, 17) else ""
    return f"manylinux_{least[0]}_{least[1]}_{machine}{alias}"


def _macos(binary: Path) -> str:
    build_version, little = 0x32, "<"
    with binary.open("rb") as file:
        _, cpu, _, _, commands, _, _, _ = struct.unpack(f"{little}8I", file.read(32))
        for _ in range(commands):
            kind, size = struct.unpack(f"{little}2I", file.read(8))
            content = file.read(size - 8)
            if kind == build_version:
                least = struct.unpack(f"{little}2I", content[:8])[1]
                machine = {0x01000007: "x86_64", 0x0100000C: "arm64"}[cpu]
                return f"macosx_{least >> 16}_{0 if least >> 16 > 10 else least >> 8 & 0xFF}_{machine}"
    raise ValueError(f"{binary} does not contain the macOS version that it needs")
