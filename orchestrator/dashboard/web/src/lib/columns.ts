import type { Sweep, SweepSpec, Trial } from "./api.gen";
import { num, short, trialWord, value } from "./text";

/** A column of the table of trials. */
export interface Column {
  key: string;
  title: string;
  /** What filters and sorting compare: numbers and text. */
  of: (t: Trial) => number | string;
  show: (t: Trial) => string;
  numeric: boolean;
  kind: "own" | "metric" | "parameter" | "note";
}

/** Returns the metrics that a sweep optimises, the first one first. */
export function objectives(spec: SweepSpec | null | undefined): { metric: string; max: boolean }[] {
  if (!spec) return [];
  return [{ metric: spec.metric, mode: spec.mode }, ...spec.objectives].filter((o) => o.metric).map((o) => ({ metric: o.metric, max: o.mode === "max" }));
}

/** Returns a trial's value of a metric: the best so far of the first objective, else the newest. */
export function metricOf(t: Trial, metric: string, first: boolean): number {
  if (first && t.best !== undefined && t.best !== null) return num(t.best);
  return num(t.last?.metrics[metric]);
}

const own: Column[] = [
  { key: "number", title: "#", of: (t) => t.number, show: (t) => String(t.number), numeric: true, kind: "own" },
  { key: "state", title: "state", of: (t) => trialWord(t.state), show: (t) => trialWord(t.state), numeric: false, kind: "own" },
  { key: "step", title: "step", of: (t) => num(t.step), show: (t) => t.step, numeric: true, kind: "own" },
];

/** Returns the value of a parameter with a dotted name. */
export function parameter(t: Trial, name: string): unknown {
  const config = t.config ?? {};
  if (name in config) return config[name];
  let x: unknown = config;
  for (const part of name.split(".")) x = typeof x === "object" && x !== null ? (x as Record<string, unknown>)[part] : undefined;
  return x;
}

/** Returns the columns of a sweep's trials: own ones, metrics, parameters in the space's order, notes. */
export function columns(sweep: Sweep, trials: Trial[]): Column[] {
  const goals = objectives(sweep.spec);
  const all = [...own];
  goals.forEach((g, i) => {
    const first = i === 0 && goals.length === 1;
    all.push({
      key: g.metric, title: `${g.metric} ${g.max ? "↑" : "↓"}`, numeric: true, kind: "metric",
      of: (t) => metricOf(t, g.metric, first), show: (t) => short(metricOf(t, g.metric, first)),
    });
  });
  const names = new Set(Object.keys(sweep.spec?.space ?? {}));
  const notes = new Set<string>(), metrics = new Set<string>();
  for (const t of trials.slice(0, 1000)) {
    for (const n of Object.keys(t.config ?? {})) names.add(n);
    for (const n of Object.keys(t.attributes)) notes.add(n);
    for (const n of Object.keys(t.last?.metrics ?? {})) if (!goals.some((g) => g.metric === n)) metrics.add(n);
  }
  for (const n of names) {
    all.push({
      key: n, title: n, numeric: trials.some((t) => typeof parameter(t, n) === "number"), kind: "parameter",
      of: (t) => { const x = parameter(t, n); return typeof x === "number" ? x : x === undefined ? NaN : value(x); },
      show: (t) => value(parameter(t, n)),
    });
  }
  for (const n of metrics) {
    all.push({ key: n, title: n, numeric: true, kind: "metric", of: (t) => num(t.last?.metrics[n]), show: (t) => short(num(t.last?.metrics[n])) });
  }
  for (const n of notes) {
    all.push({ key: n, title: n, numeric: false, kind: "note", of: (t) => t.attributes[n] ?? "", show: (t) => value(t.attributes[n]) });
  }
  const seen = new Set<string>();
  return all.filter((c) => !seen.has(c.key) && seen.add(c.key));
}

/** Compares two values of a column; NaN and "" come last in either direction. */
export function compare(a: number | string, b: number | string, descending: boolean): number {
  const none = (x: number | string): boolean => x === "" || (typeof x === "number" && Number.isNaN(x));
  if (none(a) || none(b)) return Number(none(a)) - Number(none(b));
  const order = typeof a === "number" && typeof b === "number" ? a - b : String(a).localeCompare(String(b), "en", { numeric: true });
  return descending ? -order : order;
}

/** Returns trials sorted by a column, ties by number. */
export function sorted(trials: Trial[], column: Column, descending: boolean): Trial[] {
  const keyed = trials.map((t) => ({ t, key: column.of(t) }));
  keyed.sort((a, b) => compare(a.key, b.key, descending) || a.t.number - b.t.number);
  return keyed.map((k) => k.t);
}
