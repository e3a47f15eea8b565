import { describe, expect, it } from "vitest";
import type { Sweep } from "./api.gen";
import { align, bestSoFar, grouped } from "./compared";
import { TrialStore } from "./trialstore";

/** Returns a store with columns of the trials' own state. */
function store(columns: Record<string, number[]>): TrialStore {
  const made = new TrialStore(), rows = Object.values(columns)[0]?.length ?? 0;
  const room = (n: number): number => Math.ceil(n / 8) * 8;
  const data = new ArrayBuffer(room(4 * rows) + Object.keys(columns).length * 8 * rows);
  new Int32Array(data, 0, rows).set(Array.from({ length: rows }, (_, i) => i));
  Object.values(columns).forEach((v, i) => new Float64Array(data, room(4 * rows) + i * 8 * rows, rows).set(v));
  made.put({ whole: true, rows, columns: Object.keys(columns).map((name) => ({ kind: "TRIAL_COLUMN_KIND_TRIAL", name, type: "f64" })) }, data, 0);
  return made;
}

describe("bestSoFar", () => {
  const sweep = { spec: { metric: "loss", mode: "min", objectives: [] } } as unknown as Sweep;
  const of = store({ best: [5, 3, 4, 1, NaN], ended: [10, 30, 20, NaN, 40], step: [1, 2, 3, 4, 5], device_seconds: [10, 10, 10, 10, 10] });
  const compared = { sweep, store: of, rows: 5 };

  it("is a staircase in the order of ends", () => {
    expect(bestSoFar(compared, "trials")).toEqual({ x: [1, 2, 2, 3, 3, 5, 5], y: [5, 5, 4, 4, 3, 3, 1] });
    expect(bestSoFar(compared, "steps").x).toEqual([1, 4, 4, 6, 6, 15, 15]);
    expect(bestSoFar(compared, "time").x.at(-1)).toBe(50);
    expect(bestSoFar({ ...compared, sweep: { spec: { metric: "a", mode: "max", objectives: [] } } as unknown as Sweep }, "trials")).toEqual({ x: [1, 5], y: [5, 5] });
  });

  it("is aligned with other sweeps", () => {
    const [x, a, b] = align([bestSoFar(compared, "trials"), { x: [2], y: [7] }]);
    expect(x.length).toBe(new Set(x).size);
    expect([...x].sort((p, q) => p - q)).toEqual(x);
    expect(a?.filter((v) => v !== undefined)).toEqual([5, 5, 4, 4, 3, 3, 1]);
    expect(b?.filter((v) => v !== undefined)).toEqual([7]);
  });
});

describe("grouped", () => {
  it("has those without a value last", () => {
    expect(grouped(["b2", "", "b10", "b2"], (x) => x).map(([k, v]) => [k, v.length])).toEqual([["b2", 2], ["b10", 1], ["", 1]]);
  });
});
