import type { Sweep, SweepSpec } from "./api.gen";
import { short, trialWord, value } from "./text";
import type { Cells, TrialStore } from "./trialstore";

/** A column of the table of trials. A row is the number of a trial. */
export interface Column {
  key: string;
  title: string;
  numeric: boolean;
  kind: "own" | "metric" | "parameter" | "note";
  /** The number of a trial; NaN if it has none. */
  number: (row: number) => number;
  /** The text of a trial; "" if it has none. */
  text: (row: number) => string;
  /** Returns the value that filters compare. */
  of: (row: number) => number | string;
  show: (row: number) => string;
  /** Returns a function that returns a row's sort key: a number, or the rank of a text; NaN without a value. */
  ranks: () => (row: number) => number;
}

/** Returns the metrics that a sweep optimises, the first one first. */
export function objectives(spec: SweepSpec | null | undefined): { metric: string; max: boolean }[] {
  if (!spec) return [];
  return [{ metric: spec.metric, mode: spec.mode }, ...spec.objectives].filter((o) => o.metric).map((o) => ({ metric: o.metric, max: o.mode === "max" }));
}

type About = Pick<Column, "key" | "title" | "kind">;

function ofNumbers(about: About, number: (row: number) => number): Column {
  return { ...about, numeric: true, number, text: () => "", of: number, show: (row) => short(number(row)), ranks: () => number };
}

/** Returns a column of cells whose texts are shown as words says. */
export function ofCells(about: About, cells: Cells, words: (word: string) => string): Column {
  const shown = new Map<number, string>();
  const text = (row: number): string => {
    const n = cells.text?.[row] ?? 0;
    if (n === 0) return "";
    let word = shown.get(n);
    if (word === undefined) shown.set(n, (word = words(cells.words[n] ?? "")));
    return word;
  };
  if (!cells.text) return ofNumbers(about, (row) => cells.number(row));
  const number = (row: number): number => cells.number(row);
  const numeric = cells.numbers !== undefined;
  const of = (row: number): number | string => {
    const x = cells.number(row);
    return Number.isNaN(x) ? text(row) || (numeric ? NaN : "") : x;
  };
  return {
    ...about, numeric, number, text, of,
    show: (row) => (Number.isNaN(cells.number(row)) ? text(row) || (numeric ? "–" : "") : short(cells.number(row))),
    ranks: () => {
      const order = cells.words.map((w, i) => ({ w: words(w), i })).slice(1).sort((a, b) => collator.compare(a.w, b.w));
      const rank = new Float64Array(cells.words.length).fill(NaN);
      order.forEach(({ i }, at) => (rank[i] = numeric ? Infinity : at)); // texts among numbers come after them
      return (row) => {
        const x = cells.number(row);
        return Number.isNaN(x) ? (rank[cells.text?.[row] ?? 0] ?? NaN) : x;
      };
    },
  };
}

const collator = new Intl.Collator("en", { numeric: true });

/** Returns a trial's value of a metric: the best so far of a single objective, else the newest. */
function metric(store: TrialStore, name: string, single: boolean): (row: number) => number {
  const newest = store.cells("TRIAL_COLUMN_KIND_METRIC", name);
  const best = single ? store.own("best") : undefined;
  return (row) => {
    const x = best?.number(row) ?? NaN;
    return Number.isNaN(x) ? (newest?.number(row) ?? NaN) : x;
  };
}

/** Returns the columns of a sweep's trials: own ones, metrics, parameters in the space's order, notes. */
export function columns(sweep: Sweep, store: TrialStore): Column[] {
  const goals = objectives(sweep.spec);
  const step = store.own("step"), state = store.own("state");
  const all: Column[] = [{ ...ofNumbers({ key: "number", title: "#", kind: "own" }, (row) => row), show: String }];
  if (state) all.push(ofCells({ key: "state", title: "state", kind: "own" }, state, trialWord));
  all.push({ ...ofNumbers({ key: "step", title: "step", kind: "own" }, (row) => step?.number(row) ?? NaN), show: (row) => String(step?.number(row) ?? "") });
  for (const g of goals) {
    all.push(ofNumbers({ key: g.metric, title: `${g.metric} ${g.max ? "↑" : "↓"}`, kind: "metric" }, metric(store, g.metric, goals.length === 1)));
  }
  const inSpace = (c: Cells): number => {
    const at = order.findIndex((n) => c.name === n || c.name.startsWith(`${n}.`));
    return at < 0 ? order.length : at;
  };
  const order = Object.keys(sweep.spec?.space ?? {});
  const parameters = store.of("TRIAL_COLUMN_KIND_PARAMETER").map((c) => [inSpace(c), c] as const).sort((a, b) => a[0] - b[0]);
  for (const [, c] of parameters) all.push(ofCells({ key: c.name, title: c.name, kind: "parameter" }, c, value));
  for (const c of store.of("TRIAL_COLUMN_KIND_METRIC")) all.push(ofNumbers({ key: c.name, title: c.name, kind: "metric" }, (row) => c.number(row)));
  for (const c of store.of("TRIAL_COLUMN_KIND_ATTRIBUTE")) all.push(ofCells({ key: c.name, title: c.name, kind: "note" }, c, value));
  const seen = new Set<string>();
  return all.filter((c) => !seen.has(c.key) && seen.add(c.key));
}

/** Compares two values of a column; NaN and "" come last in either direction. */
export function compare(a: number | string, b: number | string, descending: boolean): number {
  const none = (x: number | string): boolean => x === "" || (typeof x === "number" && Number.isNaN(x));
  if (none(a) || none(b)) return Number(none(a)) - Number(none(b));
  const order = typeof a === "number" && typeof b === "number" ? a - b : collator.compare(String(a), String(b));
  return descending ? -order : order;
}

/** Returns rows sorted by a column, ties by number; those without a value come last. The rows must be in the order of numbers. */
export function sorted(rows: Uint32Array, column: Column, descending: boolean): Uint32Array {
  const rank = column.ranks();
  const keys = new Float64Array(rows.length), present = new Uint32Array(rows.length);
  const out = new Uint32Array(rows.length);
  let some = 0, none = rows.length;
  for (let i = 0; i < rows.length; i++) keys[i] = rank(rows[i] ?? 0);
  for (let i = rows.length - 1; i >= 0; i--) if (Number.isNaN(keys[i])) out[--none] = rows[i] ?? 0;
  for (let i = 0; i < rows.length; i++) if (!Number.isNaN(keys[i])) present[some++] = i;
  const at = (i: number): number => keys[i] ?? 0;
  const sign = descending ? -1 : 1;
  present.subarray(0, some).sort((a, b) => (at(a) < at(b) ? -sign : at(a) > at(b) ? sign : a - b));
  for (let i = 0; i < some; i++) out[i] = rows[present[i] ?? 0] ?? 0;
  return out;
}

/** Returns the rows that pass a test, of rows from 0 on. */
export function chosen(rows: number, test: (row: number) => boolean): Uint32Array {
  const out = new Uint32Array(rows);
  let n = 0;
  for (let row = 0; row < rows; row++) if (test(row)) out[n++] = row;
  return out.subarray(0, n);
}

/** Returns the rows with the n best values of a column, the best first. */
export function best(rows: Uint32Array, column: Column, max: boolean, n: number): number[] {
  const top: { row: number; v: number }[] = [];
  for (const row of rows) {
    const x = column.number(row);
    const v = max ? -x : x;
    if (!Number.isFinite(v) || (top.length === n && v >= (top.at(-1)?.v ?? 0))) continue;
    let i = top.length;
    while (i > 0 && (top[i - 1]?.v ?? 0) > v) i--;
    top.splice(i, 0, { row, v });
    if (top.length > n) top.pop();
  }
  return top.map((t) => t.row);
}
