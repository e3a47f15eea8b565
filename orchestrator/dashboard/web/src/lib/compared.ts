import type { Sweep } from "./api.gen";
import { objectives } from "./columns";
import type { TrialStore } from "./trialstore";

/** The x axis over which the best value of a sweep is drawn. */
export type Over = "trials" | "steps" | "time";

/** A sweep with its trials. */
export interface Compared { sweep: Sweep; store: TrialStore; rows: number }

/** Returns the best so far of a sweep over its trials in the order of their ends, or over the steps or device-seconds that they took. */
export function bestSoFar({ sweep, store, rows }: Compared, over: Over): { x: number[]; y: number[] } {
  const goal = objectives(sweep.spec)[0];
  const best = store.own("best"), ended = store.own("ended"), cost = over === "trials" ? undefined : store.own(over === "steps" ? "step" : "device_seconds");
  const end = (row: number): number => {
    const at = ended?.number(row) ?? NaN;
    return Number.isNaN(at) ? Infinity : at; // those that have not ended are last
  };
  const order = Uint32Array.from({ length: rows }, (_, i) => i).sort((a, b) => (end(a) === end(b) ? a - b : end(a) - end(b)));
  const x: number[] = [], y: number[] = [];
  let spent = 0, top = NaN;
  for (const row of order) {
    const v = best?.number(row) ?? NaN, used = over === "trials" ? 1 : (cost?.number(row) ?? 0);
    spent += Number.isNaN(used) ? 0 : used;
    if (!Number.isFinite(v) || (goal?.max ? v <= top : v >= top)) continue;
    // The line is a staircase: the best stays until the next one.
    if (x.at(-1) === spent) y[y.length - 1] = v;
    else if (x.length > 0) {
      x.push(spent, spent);
      y.push(top, v);
    } else {
      x.push(spent);
      y.push(v);
    }
    top = v;
  }
  if (x.length > 0 && spent > (x.at(-1) ?? 0)) {
    x.push(spent);
    y.push(top);
  }
  return { x, y };
}

/** Returns lines as one table for a chart: all places of x in order, and the value of each line there, or nothing. Corners of a staircase stay apart by a hair. */
export function align(lines: { x: number[]; y: number[] }[]): [number[], ...(number | undefined)[][]] {
  const moved = lines.map(({ x, y }) => ({ y, x: x.map((v, i) => (x[i + 1] === v ? v - Math.max(1e-9, Math.abs(v) * 1e-9) : v)) }));
  const places = [...new Set(moved.flatMap((l) => l.x))].sort((a, b) => a - b), index = new Map(places.map((p, i) => [p, i]));
  return [places, ...moved.map(({ x, y }) => {
    const column = new Array<number | undefined>(places.length).fill(undefined);
    x.forEach((v, i) => (column[index.get(v) ?? 0] = y[i]));
    return column;
  })];
}

/** The groups of a list of sweeps, in order. `by` is tenant, state or a label. */
export function grouped<T>(rows: T[], of: (row: T) => string): [string, T[]][] {
  const groups = new Map<string, T[]>();
  for (const row of rows) {
    const key = of(row), group = groups.get(key);
    if (group) group.push(row);
    else groups.set(key, [row]);
  }
  return [...groups].sort((a, b) => (a[0] === "" ? 1 : b[0] === "" ? -1 : a[0].localeCompare(b[0], "en", { numeric: true })));
}
