import type { Float } from "./api.gen";

/** Characters that change how the text around them is shown. */
const CONTROL = /[\u0000-\u0008\u000B-\u001F\u007F-\u009F\u061C\u200E\u200F\u202A-\u202E\u2066-\u2069\uFEFF]/g;

/** Returns text from outside with control characters made visible. */
export function clean(text: string): string {
  return text.replace(CONTROL, (c) => `\\u${c.charCodeAt(0).toString(16).padStart(4, "0")}`);
}

/** Returns a number from the JSON form of protocol buffers, or NaN for a missing one. */
export function num(x: Float | string | number | null | undefined): number {
  return x === null || x === undefined || x === "" ? NaN : Number(x);
}

/** Returns a number with four significant digits, "–" for NaN. */
export function short(x: number): string {
  if (Number.isNaN(x)) return "–";
  if (!Number.isFinite(x)) return x > 0 ? "∞" : "-∞";
  const size = Math.abs(x);
  if (Number.isInteger(x) && size < 1e6) return String(x);
  if (size >= 1e6 || (size < 1e-3 && size > 0)) return x.toExponential(2).replace("e+", "e");
  return String(Number(x.toPrecision(4)));
}

/** Returns a whole number with thin groups of three digits. */
export function count(x: number): string {
  return Number.isNaN(x) ? "–" : Math.round(x).toLocaleString("en-US");
}

/** Returns a duration in its two largest units. */
export function duration(seconds: number): string {
  if (!Number.isFinite(seconds)) return "–";
  const s = Math.max(0, Math.round(seconds));
  if (s < 60) return `${s}s`;
  if (s < 3600) return `${Math.floor(s / 60)}m ${s % 60}s`;
  if (s < 86400) return `${Math.floor(s / 3600)}h ${Math.floor((s % 3600) / 60)}m`;
  return `${Math.floor(s / 86400)}d ${Math.floor((s % 86400) / 3600)}h`;
}

/** Returns bytes with a binary unit. */
export function bytes(n: number): string {
  if (!Number.isFinite(n)) return "–";
  const units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
  let i = 0;
  while (n >= 1024 && i < units.length - 1) {
    n /= 1024;
    i++;
  }
  return `${i === 0 ? n : n.toFixed(1)} ${units[i]}`;
}

/** Returns a time as the viewer's clock has it, without the date if it is today's. */
export function clock(time: string | null | undefined, now = new Date()): string {
  if (!time) return "–";
  const t = new Date(time);
  const hms = t.toLocaleTimeString("en-GB");
  return t.toDateString() === now.toDateString() ? hms : `${t.toLocaleDateString("en-CA")} ${hms}`;
}

/** Returns the seconds from a time to another, or to now. */
export function between(from: string | null | undefined, to?: string | null): number {
  if (!from) return NaN;
  return ((to ? Date.parse(to) : Date.now()) - Date.parse(from)) / 1000;
}

/** Returns the word of an enum's value: "running" for "TRIAL_STATE_RUNNING". */
export function word(value: string): string {
  const w = value.replace(/^(?:SWEEP|TRIAL|NODE)_STATE_/, "").toLowerCase();
  return w === "unspecified" ? "unknown" : w;
}

/** Returns a trial's state in the words of the field: its tuner prunes it, a person stops it. */
export function trialWord(value: string): string {
  return { TRIAL_STATE_STOPPED: "pruned", TRIAL_STATE_CANCELLED: "stopped" }[value] ?? word(value);
}

/** Returns a word with a capital letter. */
export function capital(word: string): string {
  return `${word.slice(0, 1).toUpperCase()}${word.slice(1)}`;
}

/** Returns a parameter's value as one line. */
export function value(x: unknown): string {
  if (typeof x === "number") return short(x);
  if (typeof x === "string") return clean(x);
  return x === undefined ? "" : clean(JSON.stringify(x));
}

/** Returns a cell of a CSV file. Cells that a spreadsheet would take for formulas begin with an apostrophe. */
export function csvCell(x: string): string {
  const guarded = /^[=+\-@\t\r]/.test(x) && Number.isNaN(Number(x)) ? `'${x}` : x;
  return /[",\n\r]/.test(guarded) ? `"${guarded.replaceAll('"', '""')}"` : guarded;
}

/** Offers data as a file to be saved. */
export function save(name: string, data: Blob): void {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(data);
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}

/** Offers rows as a CSV file to be saved. */
export function saveCsv(name: string, rows: string[][]): void {
  save(name, new Blob([rows.map((r) => `${r.map(csvCell).join(",")}\r\n`).join("")], { type: "text/csv" }));
}

/** Returns a word for a POSIX shell, quoted if need be. */
export function shellWord(x: string): string {
  return /^[\w@%+=:,./-]+$/.test(x) ? x : `'${x.replaceAll("'", `'\\''`)}'`;
}
