"""Compare averaging five safetensors files by `outbid average`, NumPy and PyTorch with `cat` and `cp`, in turns.

    python compare.py OUTBID DIRECTORY [MIB] [RUNS]

OUTBID is the binary. Without PyTorch only the others are compared. DIRECTORY temporarily contains seven files of MIB
(1024) MiB. A directory in memory, such as /dev/shm, shows the cost of computing, and one on a disk that of the disk.

All read files that are in the page cache. Both scripts map the files and add piece by piece in float64, like Outbid.
Importing their libraries is not measured, but starting programs is. `cat` reads all five files and writes nothing. `cp`
copies one of them, which is about the cost of writing the result. That cost can exceed all others, because a virtual
machine has to ask its host for memory that was idle, which no contender can avoid. Therefore each that writes first
removes the previous result, so that enough memory has just been freed.
"""

import json
import os
import resource
import statistics
import struct
import subprocess
import sys
import time
from collections.abc import Callable

import numpy as np

try:
    import torch
except ImportError:  # the others can be compared without it
    torch = None

WEIGHTS = [1, 2, 3, 4, 5]
PIECE = 1 << 16  # numbers at once: the sums and the added numbers stay in a core's cache


def make(path: str, kind: str, mib: int, seed: int) -> None:
    width = 4 if kind == "F32" else 2
    numbers = np.random.default_rng(seed).normal(0, 0.02, (mib << 20) // width // 64).astype(np.float32)
    if kind == "BF16":
        numbers = (numbers.view(np.uint32) >> 16).astype(np.uint16)
    header, at = {}, 0
    for k in range(64):
        place = [at, at + numbers.nbytes]
        header[f"layers.{k}.weight"] = {"dtype": kind, "shape": [len(numbers)], "data_offsets": place}
        at += numbers.nbytes
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text)
        for k in range(64):
            f.write(np.roll(numbers, k).tobytes())


def layout(path: str) -> tuple[bytes, int]:
    with open(path, "rb") as f:
        size = f.read(8)
        text = f.read(struct.unpack("<Q", size)[0])
    return size + text, 8 + len(text)


def with_numpy(files: list[str], to: str, kind: str) -> None:
    head, begin = layout(files[0])
    sources = [np.memmap(f, np.float32 if kind == "F32" else np.uint16, "r", offset=begin) for f in files]
    shares = [w / sum(WEIGHTS) for w in WEIGHTS]
    with open(to, "wb") as out:
        out.write(head)
        for at in range(0, len(sources[0]), PIECE):
            total = None
            for source, share in zip(sources, shares, strict=True):
                piece = source[at : at + PIECE]
                if kind == "BF16":
                    piece = (piece.astype(np.uint32) << 16).view(np.float32)
                part = np.multiply(piece, share, dtype=np.float64)
                total = part if total is None else np.add(total, part, out=total)
            mean = total.astype(np.float32)
            if kind == "BF16":
                bits = mean.view(np.uint32)
                mean = ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype(np.uint16)
            out.write(mean.data)


def with_torch(files: list[str], to: str, kind: str) -> None:
    dtype = torch.float32 if kind == "F32" else torch.bfloat16
    head, begin = layout(files[0])
    size = os.path.getsize(files[0])
    sources = [torch.from_file(f, size=size, dtype=torch.uint8)[begin:] for f in files]
    sources = [s.view(dtype) if begin % 8 == 0 else s.clone().view(dtype) for s in sources]
    shares = [w / sum(WEIGHTS) for w in WEIGHTS]
    total = torch.empty(PIECE, dtype=torch.float64)
    with open(to, "wb") as out:
        out.write(head)
        for at in range(0, len(sources[0]), PIECE):
            n = min(PIECE, len(sources[0]) - at)
            part = total[:n]
            part.zero_()
            for source, share in zip(sources, shares, strict=True):
                part.add_(source[at : at + n].double(), alpha=share)
            out.write(part.to(dtype).view(torch.uint8).numpy().data)


def used() -> float:
    both = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(u.ru_utime + u.ru_stime for u in both)


def same(kind: str, left: str, right: str) -> str:
    """Return the maximum difference of two means, in units of the last place."""
    whole, narrow = (np.int32, 4) if kind == "F32" else (np.int16, 2)
    begins = [layout(f)[1] for f in (left, right)]
    worst = 0
    maps = [
        np.memmap(f, whole, "r", offset=b) if b % narrow == 0 else None
        for f, b in zip((left, right), begins, strict=True)
    ]
    for at in range(0, len(maps[0]), 1 << 22):
        a, b = (m[at : at + (1 << 22)].astype(np.int64) for m in maps)
        lowest = np.int64(-1) << (8 * narrow - 1)
        a, b = (np.where(x < 0, lowest - x, x) for x in (a, b))  # in numeric order, in which -0 is 0
        worst = max(worst, int(np.abs(a - b).max()))
    return f"{worst} units of the last place"


def contenders(outbid: str, files: list[str], to: str, kind: str) -> dict[str, Callable[[], object]]:
    given = [f"{f}={w}" for f, w in zip(files, WEIGHTS, strict=True)]
    average = [outbid, "average", *given, "--to", to]
    works: dict[str, Callable[[], object]] = {
        "cat": lambda: subprocess.run(["cat", *files], stdout=subprocess.DEVNULL, check=True),
        "cp": lambda: subprocess.run(["cp", "--reflink=never", files[0], to], check=True),
        "outbid": lambda: subprocess.run(average, capture_output=True, check=True),
        "numpy": lambda: with_numpy(files, to, kind),
    }
    if torch is not None:
        works["torch"] = lambda: with_torch(files, to, kind)
    return works


def spread(seconds: list[float]) -> str:
    return f"{statistics.median(seconds):6.2f} s ({min(seconds):.2f} to {max(seconds):.2f})"


def compare(outbid: str, files: list[str], to: str, kind: str, mib: int, runs: int) -> None:
    ours = to + ".ours"
    works = contenders(outbid, files, to, kind)
    wall: dict[str, list[float]] = {name: [] for name in works}
    busy: dict[str, list[float]] = {name: [] for name in works}
    apart = ""
    for run in range(runs + 1):
        for name, work in works.items():
            if name != "cat" and os.path.exists(to):
                os.remove(to)
            before, began = used(), time.monotonic()
            work()
            if run:  # the first run is a warm-up
                wall[name].append(time.monotonic() - began)
                busy[name].append(used() - before)
            if name == "outbid" and not run:
                os.rename(to, ours)
            elif name == "numpy" and not run:
                apart = same(kind, to, ours)
                os.remove(ours)
    load, cores = os.getloadavg()[0], os.cpu_count()
    print(f"{kind}: five files of {mib} MiB, {runs} runs in turns, load {load:.0f}, {cores} cores;", end=" ")
    print(f"numpy is {apart} from outbid at most")
    for name in works:
        ratios = [c / w for c, w in zip(wall["cat"], wall[name], strict=True)]
        print(f"  {name:7} {spread(wall[name])}, {statistics.median(busy[name]):5.2f} s of processor,", end=" ")
        print(f"{5 * mib / 1024 / statistics.median(wall[name]):5.2f} GiB/s,", end=" ")
        print(f"{statistics.median(ratios):.2f} of cat ({min(ratios):.2f} to {max(ratios):.2f})", flush=True)


def main() -> None:
    if torch is None:
        print("PyTorch is not installed here and is left out")
    else:
        # Threads wait for each other at every piece, which costs more than a second core gains.
        torch.set_num_threads(1)
    outbid, directory = sys.argv[1], sys.argv[2]
    mib, runs = [int(a) for a in sys.argv[3:] + ["1024", "5"][len(sys.argv) - 3 :]]
    files = [os.path.join(directory, f"average-{k}.safetensors") for k in range(5)]
    to = os.path.join(directory, "average-mean.safetensors")
    try:
        for kind in ("F32", "BF16"):
            for k, f in enumerate(files):
                make(f, kind, mib, k)
            compare(outbid, files, to, kind, mib, runs)
    finally:
        for f in [*files, to, to + ".ours"]:
            if os.path.exists(f):
                os.remove(f)


main()
