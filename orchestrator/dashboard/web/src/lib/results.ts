import type { Ink } from "./picture";
import type { Pen } from "./pen";
import { cut } from "./contour";
import { clean } from "./text";

/** The figures of a simulated run, as docs/reference/figures.md defines them. */
export interface Run { policy: string; setting: string; value: string; figures: Record<string, number> }

/** The outcome of a sweep, or of a job outside sweeps, under a policy. */
export interface Fate { policy: string; app: string; tenant: string; submitted: number; shared: number; rho: number }

/** A decision that was different when it was repeated. */
export interface Difference { policy: string; round: number; time: string; then: string; now: string }

/** The result of `outbid replay`, which compares repeated decisions of policies with the recorded ones. */
export interface Repeated { rounds: number; decisions: number; differing: number; policies: [string, number][]; differences: Difference[] }

export interface Results { runs: Run[]; fates: Fate[]; repeated: Repeated[]; skipped: number }

/** The largest file that is read, and the most lines, runs and outcomes that are kept. */
export const LARGEST = 64 << 20;
const LINES = 500_000, RUNS = 1000, FATES = 200_000, DIFFERENCES = 100, NAME = 200;

type Json = Record<string, unknown>;

const isObject = (v: unknown): v is Json => typeof v === "object" && v !== null && !Array.isArray(v);
const text = (v: unknown): string => (typeof v === "string" ? clean(v.slice(0, NAME)) : "");

/** Returns a number of JSON; NaN for anything else. Numbers that JSON does not have are texts. */
function number(v: unknown): number {
  if (typeof v === "number") return v;
  return v === "Infinity" || v === "-Infinity" ? Number(v) : NaN;
}

function runOf(o: Json): Run {
  const figures: Record<string, number> = {};
  for (const [key, v] of Object.entries(o)) {
    const n = number(v);
    if (!Number.isNaN(n) && /^[a-z][a-z0-9_]{0,60}$/.test(key)) figures[key] = n;
  }
  return { policy: text(o["policy"]), setting: text(o["setting"]), value: text(o["value"]), figures };
}

function repeatedOf(o: Json): Repeated {
  const differences = Array.isArray(o["differences"]) ? o["differences"].slice(0, DIFFERENCES).filter(isObject) : [];
  return {
    rounds: number(o["rounds"]), decisions: number(o["decisions"]), differing: number(o["differing"]),
    policies: isObject(o["policies"]) ? Object.entries(o["policies"]).slice(0, 100).map(([k, v]) => [text(k), number(v)]) : [],
    differences: differences.map((d) => ({ policy: text(d["policy"]), round: number(d["round"]), time: text(d["time"]), then: text(d["then"]), now: text(d["now"]) })),
  };
}

/** Puts an object of a file into the results. Returns false if it is of another kind. */
function take(into: Results, o: unknown): boolean {
  if (!isObject(o)) return false;
  if (typeof o["policy"] === "string" && typeof o["app"] === "string") {
    if (into.fates.length < FATES) into.fates.push({ policy: text(o["policy"]), app: text(o["app"]), tenant: text(o["tenant"]), submitted: number(o["submitted_s"]), shared: number(o["shared_s"]), rho: number(o["rho"]) });
    return true;
  }
  if (typeof o["policy"] === "string" && typeof o["jobs"] === "number") {
    if (into.runs.length < RUNS) into.runs.push(runOf(o));
    return true;
  }
  if (typeof o["rounds"] === "number" && typeof o["differing"] === "number") {
    if (into.repeated.length < RUNS) into.repeated.push(repeatedOf(o));
    return true;
  }
  return false;
}

function parsed(line: string): unknown {
  try {
    return JSON.parse(line) as unknown;
  } catch {
    return undefined;
  }
}

/** Parses the output of `outbid sim` and `outbid replay` with -o json or jsonl, and the files of --apps. An error names the expected output. */
export function parseResults(name: string, content: string): Results {
  const into: Results = { runs: [], fates: [], repeated: [], skipped: 0 };
  const lines = content.split("\n", LINES + 1).filter((l) => l.trim() !== "");
  const objects = lines.length > 1 && parsed(lines[0] ?? "") === undefined ? [content] : lines.slice(0, LINES);
  for (const line of objects) if (!take(into, parsed(line))) into.skipped++;
  if (into.runs.length + into.fates.length + into.repeated.length > 0) return into;
  const first = parsed(lines[0] ?? "");
  const ledger = isObject(first) && ("batch" in first || "events" in first || "prev_hash" in first);
  throw new Error(`${clean(name)}: ${ledger ? "is a ledger: 'outbid replay FILE -o json' and 'outbid sim -o json' compute the results of one" : lines.length === 0 ? "is empty" : "has no line of 'outbid sim -o json', 'outbid sim --apps' or 'outbid replay -o json'"}`);
}

/** Returns the cumulative distribution of the values of each policy, from 0 to 1, with at most `most` points. */
export function distribution(values: [string, number][], most: number): [string, { x: number[]; y: number[] }][] {
  const by = new Map<string, number[]>();
  for (const [policy, v] of values) {
    if (!Number.isFinite(v)) continue;
    const own = by.get(policy);
    if (own) own.push(v);
    else by.set(policy, [v]);
  }
  return [...by].map(([policy, all]) => {
    all.sort((a, b) => a - b);
    const every = Math.max(1, Math.ceil(all.length / most)), x: number[] = [], y: number[] = [];
    all.forEach((v, i) => {
      if (i % every !== 0 && i !== all.length - 1) return;
      if (x.at(-1) === v) y[y.length - 1] = (i + 1) / all.length;
      else {
        x.push(v);
        y.push((i + 1) / all.length);
      }
    });
    return [policy, { x, y }];
  });
}

const ROW = 20, LEFT = 150, RIGHT = 70;

/** Returns the height of bars. */
export function heightOf(bars: number): number {
  return 8 + ROW * bars;
}

/** Draws a bar for each value, from zero. */
export function drawBars(pen: Pen, ink: Ink, bars: { name: string; value: number; shown: string; colour: string }[], width: number): void {
  const low = Math.min(0, ...bars.map((b) => b.value).filter(Number.isFinite)), high = Math.max(0, ...bars.map((b) => b.value).filter(Number.isFinite));
  const place = (v: number): number => LEFT + ((Math.min(high, Math.max(low, v)) - low) / (high - low || 1)) * (width - LEFT - RIGHT);
  pen.font = "11px system-ui";
  bars.forEach((b, i) => {
    const y = 4 + i * ROW;
    pen.fillStyle = b.colour;
    if (!Number.isNaN(b.value)) pen.fillRect(Math.min(place(0), place(b.value)), y, Math.max(1, Math.abs(place(b.value) - place(0))), ROW - 5);
    pen.fillStyle = ink.text;
    pen.textAlign = "right";
    pen.fillText(cut(b.name, 22), LEFT - 6, y + 12);
    pen.textAlign = "left";
    pen.fillText(b.shown, Math.max(place(0), place(b.value)) + 5, y + 12);
  });
}
