"""Print the tables of docs/research/outbid.md: python docs/research/outbid/outbid_table.py FILES (.jsonl or .jsonl.gz)

FILES contain the lines of the runs. For a headline workload and figure of a paper, a table has its own policy, the best
of all others, and the ratio of `outbid` to each by seed (HadarE: the geometric mean over its mixes), with half of a 95
% interval of Student's t. Another table shows the effect of each part of `outbid`: the ratio of the figures with an
option that disables the part to those without the option.
"""

import gzip
import json
import math
import statistics
import sys
from pathlib import Path

# Two-sided 95 % quantiles of Student's t by degrees of freedom.
T = {1: 12.706, 2: 4.303, 3: 3.182, 4: 2.776, 5: 2.571, 6: 2.447, 7: 2.365, 8: 2.306, 9: 2.262}
# Paper, figure in words and in the lines, unit, and whether lower is better.
ROWS = [
    ("Themis", "max rho", "rho_max", 1, True),
    ("Themis", "Jain's index of rho", "jain_rho", 1, False),
    ("Themis", "device time, days", "gpu_seconds", 86400, True),
    ("Hadar", "total, h", "makespan_s", 3600, True),
    ("Hadar", "mean JCT, h", "jct_mean_s", 3600, True),
    ("HadarE", "total, s", "makespan_s", 1, True),
    ("HadarE", "mean JCT, s", "jct_mean_s", 1, True),
    ("ASTRAEA", "jobs with sharing loss, %", "job_sharing_loss", 0.01, True),
    ("ASTRAEA", "tenants' hours with it, %", "tenant_sharing_loss", 0.01, True),
    ("ASTRAEA", "mean slowdown", "slowdown_mean", 1, True),
    ("ASTRAEA", "mean JCT, h", "jct_mean_s", 3600, True),
    ("ASTRAEA on Philly", "jobs with sharing loss, %", "job_sharing_loss", 0.01, True),
    ("ASTRAEA on Philly", "tenants' hours with it, %", "tenant_sharing_loss", 0.01, True),
    ("ASTRAEA on Philly", "mean slowdown", "slowdown_mean", 1, True),
    ("ASTRAEA on Philly", "mean JCT, h", "jct_mean_s", 3600, True),
    ("OASiS", "total utility", "utility_total", 1, False),
    ("OGASched", "total utility", "utility_total", 1, False),
]
# A paper's own policy. If it has several rows, the best counts.
OWN = {
    "Themis": "themis",
    "Hadar": "hadar",
    "HadarE": "hadare",
    "ASTRAEA": "astraea",
    "ASTRAEA on Philly": "astraea",
    "OASiS": "oasis",
    "OGASched": "ogasched",
}


def interval(values: list[float]) -> str:
    """Return the mean and half of its 95 % interval."""
    half = T[len(values) - 1] * statistics.stdev(values) / math.sqrt(len(values)) if len(values) > 1 else 0.0
    return f"{statistics.fmean(values):.3g} ± {half:.2g}"


def policy(row: str) -> str:
    """Return the policy of a row, which is its first word."""
    return row.split()[0].rstrip(",")


def figures(lines: list[dict], paper: str, figure: str) -> dict[str, dict[int, float]]:
    """Return a figure by row and seed; for several tables, the geometric mean."""
    of: dict[str, dict[int, list[float]]] = {}
    for line in lines:
        if line["table"].startswith(paper + ","):
            of.setdefault(line["row"], {}).setdefault(line["seed"], []).append(line["figures"][figure])
    return {
        row: {seed: statistics.geometric_mean(v) if len(v) > 1 else v[0] for seed, v in by.items()}
        for row, by in of.items()
    }


def verdict(ours: dict[int, float], theirs: dict[int, float], less: bool) -> str:
    """Return the ratio of ours to theirs, and whether it is ahead, within 2 % or behind."""
    if not all(theirs.values()):
        over = [a - b for a, b in zip(ours.values(), theirs.values(), strict=True)]
        return f"{interval(over)} more" if less else f"{interval(over)} less"
    over = [ours[seed] / theirs[seed] for seed in sorted(ours)]
    behind = statistics.fmean(over) - 1 if less else 1 - statistics.fmean(over)
    word = "ahead" if behind < 0 else "within 2 %" if behind <= 0.02 else f"{100 * behind:.0f} % behind"
    return f"{interval(over)}: {word}"


def read(path: Path) -> str:
    """Return the text of a file, decompressed if its name ends with .gz."""
    data = path.read_bytes()
    return (gzip.decompress(data) if path.suffix == ".gz" else data).decode()


def main() -> None:
    """Print the table."""
    lines = [json.loads(line) for name in sys.argv[1:] for line in read(Path(name)).splitlines()]
    print("| workload, figure | seeds | `outbid` | the paper's own | over it | best of the others | over it |")
    print("|---|---|---|---|---|---|---|")
    for paper, text, figure, unit, less in ROWS:
        of = figures(lines, paper, figure)
        if "outbid" not in of or OWN[paper] not in map(policy, of):
            continue
        seeds = sorted(of["outbid"])  # seeds that only other policies were run with are left out
        of = {row: {s: by[s] for s in seeds} for row, by in of.items() if by.keys() >= set(seeds)}
        means = {row: statistics.fmean(by.values()) for row, by in of.items()}
        rows: dict[bool, list[str]] = {True: [], False: []}
        for row in of:
            if policy(row) != "outbid":
                rows[policy(row) == OWN[paper]].append(row)
        own, best = (min(rows[mine], key=lambda row: means[row] if less else -means[row]) for mine in (True, False))
        ours = of["outbid"]
        cells = [f"{paper}, {text}", str(len(seeds)), interval([v / unit for v in ours.values()])]
        for row in (own, best):
            cells += [f"`{row}` {interval([v / unit for v in of[row].values()])}", verdict(ours, of[row], less)]
        print("| " + " | ".join(cells) + " |")
    parts(lines)


def parts(lines: list[dict]) -> None:
    """Print the effect of each option, relative to `outbid` without it."""
    print("\n| workload | `outbid` with | over `outbid` |\n|---|---|---|")
    for paper in OWN:
        said: dict[str, list[str]] = {}
        for name, text, figure, _, _ in ROWS:
            of = figures(lines, paper, figure) if name == paper else {}
            for row in sorted(row for row in of if policy(row) == "outbid" and row != "outbid"):
                over = [of[row][seed] / value for seed, value in sorted(of["outbid"].items()) if seed in of[row]]
                said.setdefault(row, []).append(f"{text.split(',')[0]} {interval(over)}")
        for row, ratios in said.items():
            print(f"| {paper} | `{row.removeprefix('outbid ')}` | {'; '.join(ratios)} |")


if __name__ == "__main__":
    main()
