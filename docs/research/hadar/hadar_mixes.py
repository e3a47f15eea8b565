"""Print the tables of M-1 to M-12 of docs/research/hadar.md.

    hadar_mixes.py RUNS.jsonl

RUNS.jsonl, which may be compressed with gzip, is the output of `outbid-lab study docs/research/hadar/hadar.yaml
--results RUNS.jsonl`. The tables have means over the five seeds with 95 % intervals (Student's t). They compare HadarE
and Hadar with Gavel for the same slot, by the mean over the mixes for each seed. They also show totals and utilisation
of HadarE by slot, and its total relative to Hadar's with slots of 90 s, for the same jobs.
"""

import gzip
import json
import math
import sys

MIXES = ["M-1", "M-3", "M-4", "M-5", "M-8", "M-10", "M-12"]
CLUSTERS = ["AWS", "lab"]
SLOTS = ["90s", "180s", "360s", "720s"]
SEEDS = range(100, 105)
STUDENT = 2.776  # the 97.5 % quantile with four degrees of freedom
MAX_MIN, MAKESPAN = "gavel-las-perf", "gavel-makespan-perf"
TOTAL, COMPLETION, BUSY = "makespan_s", "jct_mean_s", "utilization"


def read(path):
    """Return the figures of each run by mix, cluster, row and seed."""
    runs = {}
    with gzip.open(path, "rt") if path.endswith(".gz") else open(path) as file:
        for line in file:
            run = json.loads(line)
            if run["table"].startswith("M-"):
                runs[(*run["table"].split(", "), run["row"], int(run["seed"]))] = run["figures"]
    return runs


def interval(values):
    """Return the mean and half of its 95 % interval."""
    mean = sum(values) / len(values)
    spread = math.sqrt(sum((v - mean) ** 2 for v in values) / (len(values) - 1))
    return mean, STUDENT * spread / math.sqrt(len(values))


def parts(values):
    """Return a ratio or a share with its interval, in the format of the tables."""
    return "{:.2f} ± {:.2f}".format(*interval(values))


def seconds(values):
    """Return a total with its interval, in the format of the tables."""
    return " ± ".join(f"{v:.0f}" if v >= 100 else f"{v:.1f}" for v in interval(values))


def main(path):
    """Print the rows of the three tables."""
    runs = read(path)

    def of(policy, mix, cluster, slot, figure, seed):
        anew = f" interval={slot}" if policy in (MAX_MIN, MAKESPAN) else ""  # Gavel allocates again in each slot
        return runs[mix, cluster, f"{policy} round={slot}{anew}", seed][figure]

    def over(rival, policy, figure, cluster, slot):
        """Return how many times better the policy's figure is: the mean over the mixes for each seed."""
        ratios = []
        for seed in SEEDS:
            pairs = [[of(p, m, cluster, slot, figure, seed) for p in (rival, policy)] for m in MIXES]
            ratios.append(sum(own / its if figure == BUSY else its / own for its, own in pairs) / len(MIXES))
        return parts(ratios)

    def row(*cells):
        print("| " + " | ".join(cells) + " |")

    for cluster in CLUSTERS:
        for slot in SLOTS:
            pairs = [(MAX_MIN, "hadar"), (MAX_MIN, "hadare")]
            cells = [over(*pair, f, cluster, slot) for pair in pairs for f in (TOTAL, COMPLETION, BUSY)]
            cells += [over(MAKESPAN, "hadare", f, cluster, slot) for f in (TOTAL, COMPLETION)]
            row(f"{cluster}, {slot}", *cells, over("hadar", "hadare", TOTAL, cluster, slot))
    print()
    for mix in MIXES:
        cells = []
        for cluster in CLUSTERS:
            totals = {slot: [of("hadare", mix, cluster, slot, TOTAL, s) for s in SEEDS] for slot in SLOTS}
            best = min(round(interval(t)[0]) for t in totals.values())
            for slot, total in totals.items():
                mean, rest = seconds(total).split(" ", 1)
                mean = f"**{mean}**" if round(interval(total)[0]) == best else mean
                cells.append(f"{mean} {rest}, " + parts([of("hadare", mix, cluster, slot, BUSY, s) for s in SEEDS]))
        rivals = (MAX_MIN, MAKESPAN, "hadar")
        row(mix, *cells, " / ".join(seconds([of(p, mix, "AWS", "90s", TOTAL, s) for s in SEEDS]) for p in rivals))
    print()
    for mix in MIXES:
        cells = []
        for cluster in CLUSTERS:
            for slot in SLOTS:
                own = [of("hadare", mix, cluster, slot, TOTAL, s) for s in SEEDS]
                its = [of("hadar", mix, cluster, "90s", TOTAL, s) for s in SEEDS]
                cells.append(parts([a / b for a, b in zip(own, its, strict=True)]))
        row(mix, *cells)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        raise SystemExit(__doc__)
    main(sys.argv[1])
