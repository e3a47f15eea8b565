import { describe, expect, it } from "vitest";
import type { Column } from "./columns";
import { bestCells, cellAt, grid, rangeOf } from "./contour";
import { failureKind } from "./failures";
import { age, lives, timeTicks } from "./timeline";

const rows = (n: number): Uint32Array => Uint32Array.from({ length: n }, (_, i) => i);
const column = (key: string, number: (row: number) => number): Column =>
  ({ key, title: key, numeric: true, kind: "parameter", number, text: () => "", of: number, show: String, ranks: () => number });

describe("grid", () => {
  const x = column("x", (row) => 10 ** ((row % 100) / 25 - 4)), y = column("y", (row) => Math.floor(row / 100) % 2);
  const metric = column("loss", (row) => (row === 7 ? NaN : row));

  it("puts each trial with a result into a cell", () => {
    const g = grid(rows(1000), x, y, metric, { logX: true, logY: false, best: true, max: false });
    expect(g.used).toBe(999);
    expect(g.trials.reduce((a, b) => a + b, 0)).toBe(999);
    expect([g.y.low, g.y.high, g.y.cells]).toEqual([-0.5, 1.5, 2]); // a cell for each whole number
    expect(g.value[bestCells(g, false, 1)[0] ?? 0]).toBe(0);
    const range = rangeOf(g.x, 0) as [number, number];
    expect(range[0]).toBeCloseTo(1e-4);
    expect(cellAt(g, 65, 150, 600, 360)).toBe(0 + g.x.cells);
    expect(cellAt(g, 5, 150, 600, 360)).toBe(-1);
  });

  it("takes the mean, names, and one value", () => {
    const names = { ...column("opt", () => NaN), numeric: false, text: (row: number) => (row % 2 ? "b" : "a") };
    const g = grid(rows(4), names, column("c", () => 3.5), metric, { logX: false, logY: true, best: false, max: true });
    expect([...g.value].filter((v) => !Number.isNaN(v))).toEqual([1, 2]);
    expect(rangeOf(g.x, 1)).toBe("b");
  });

  it("is quick with 100,000 trials", () => {
    const began = performance.now();
    grid(rows(100_000), x, column("z", (row) => (row * 7919) % 1000), metric, { logX: true, logY: false, best: false, max: false });
    expect(performance.now() - began).toBeLessThan(1000);
  });
});

describe("lives", () => {
  const begin = (row: number): number => row / 100, end = (row: number): number => row / 100 + 5;

  it("has a line for each of few trials", () => {
    const t = lives(rows(3), begin, end, (row) => row, 400, 1000);
    expect(t.bars).toEqual([{ line: 0, from: 0, to: 5, kind: 0 }, { line: 1, from: 0.01, to: 5.01, kind: 1 }, { line: 2, from: 0.02, to: 5.02, kind: 2 }]);
  });

  it("joins many trials", () => {
    const began = performance.now();
    const t = lives(rows(100_000), begin, end, (row) => (row < 50_000 ? 0 : 1), 400, 1000);
    expect(performance.now() - began).toBeLessThan(1000);
    expect([t.lines, t.begin, Math.round(t.end)]).toEqual([400, 0, 1005]);
    expect(t.bars.length).toBe(400);
    expect(t.bars[399]?.kind).toBe(1);
  });

  it("survives a trial without times", () => {
    expect(lives(rows(1), () => NaN, () => NaN, () => 0, 10, 10).bars).toEqual([]);
    expect([0, 1.2000000001, 0.0234567, 61].map(age)).toEqual(["0s", "1.2s", "0.023s", "1m 1s"]);
    expect(timeTicks(Infinity, 5)).toEqual([]);
    expect(timeTicks(7200, 4)).toEqual([0, 1800, 3600, 5400, 7200]);
  });
});

describe("failureKind", () => {
  it("leaves out what happens next", () => {
    expect(failureKind("failed for good: exited with code 1: it starts again in 3 s")).toBe("exited with code 1");
    expect(failureKind("ValueError: a\n b\u202e")).toBe("ValueError: a b\\u202e");
    expect(failureKind("x".repeat(500)).length).toBe(160);
  });
});
