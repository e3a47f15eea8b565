import type { Ink } from "./picture";
import type { Pen } from "./pen";
import { cut } from "./contour";
import { duration } from "./text";

/** The span of a bar, in seconds. `kind` is the index of its colour. */
export interface Bar { line: number; from: number; to: number; kind: number; faint?: boolean }

/** Bars on lines. `labels` of lines may be absent. */
export interface Timeline { bars: Bar[]; lines: number; begin: number; end: number; labels?: string[] }

/**
 * Returns a bar from the creation to the end of each trial, one line for each, in their order. If there are more trials than
 * lines, several trials share a line, which has one bar for each column in which the shown trial changes: a later trial hides an
 * earlier one.
 */
export function lives(rows: Uint32Array, from: (row: number) => number, to: (row: number) => number, kind: (row: number) => number, most: number, columns: number): Timeline {
  let begin = Infinity, end = -Infinity;
  for (const row of rows) {
    const a = from(row), b = to(row);
    if (a < begin) begin = a;
    if (b > end) end = b;
  }
  if (!(end > begin)) [begin, end] = [Number.isFinite(begin) ? begin : 0, (Number.isFinite(begin) ? begin : 0) + 1];
  if (rows.length <= most) {
    const bars = [...rows].map((row, line) => ({ line, from: from(row), to: to(row), kind: kind(row) })).filter((b) => b.to >= b.from);
    return { bars, lines: rows.length, begin, end };
  }
  const seen = new Uint8Array(most * columns), step = (end - begin) / columns;
  for (let i = 0; i < rows.length; i++) {
    const row = rows[i] ?? 0, a = from(row), b = to(row);
    if (!(b >= a)) continue;
    const base = Math.floor((i * most) / rows.length) * columns, first = Math.min(columns - 1, Math.floor((a - begin) / step));
    seen.fill(kind(row) + 1, base + first, base + Math.min(columns, Math.max(first + 1, Math.ceil((b - begin) / step))));
  }
  const bars: Bar[] = [];
  for (let line = 0; line < most; line++) {
    for (let x = 0, start = 0; x < columns; x++) {
      const own = seen[line * columns + x] ?? 0;
      if (x + 1 < columns && seen[line * columns + x + 1] === own) continue;
      if (own > 0) bars.push({ line, from: begin + start * step, to: begin + (x + 1) * step, kind: own - 1 });
      start = x + 1;
    }
  }
  return { bars, lines: most, begin, end };
}

const UNITS = [0.001, 0.01, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1200, 1800, 3600, 7200, 14400, 28800, 43200, 86400, 172800, 604800];

/** Returns times between 0 and a length that have labels. */
export function timeTicks(length: number, most: number): number[] {
  if (!(length > 0) || !Number.isFinite(length)) return [];
  const unit = UNITS.find((u) => length / u <= most) ?? 604800 * Math.ceil(length / 604800 / most);
  return Array.from({ length: Math.floor(length / unit + 1e-9) + 1 }, (_, i) => i * unit);
}

/** Returns a duration, below ten seconds with milliseconds. */
export function age(seconds: number): string {
  return seconds < 10 ? `${Number(seconds.toFixed(3))}s` : duration(seconds).replace(/ 0[smh]$/, "");
}

const TOP = 6, BOTTOM = 22, RIGHT = 10;

/** Returns where a timeline's lines begin. */
export function leftOf(t: Timeline): number {
  return t.labels ? 8 + 6.3 * Math.min(18, Math.max(0, ...t.labels.map((l) => l.length))) : 10;
}

/** Returns the line at a height of the picture, which may be outside. */
export function lineAt(t: Timeline, y: number, height: number): number {
  return Math.floor(((y - TOP) / (height - TOP - BOTTOM)) * t.lines);
}

/** Draws a timeline. Its axis has the time since its begin, or the text of `at` for a time. */
export function drawTimeline(pen: Pen, ink: Ink, t: Timeline, colours: string[], width: number, height: number, at?: (time: number) => string): void {
  const left = leftOf(t), wide = width - left - RIGHT, tall = (height - TOP - BOTTOM) / Math.max(1, t.lines);
  const place = (time: number): number => left + ((time - t.begin) / (t.end - t.begin)) * wide;
  pen.font = "11px system-ui";
  pen.lineWidth = 1;
  pen.textAlign = "center";
  for (const tick of timeTicks(t.end - t.begin, Math.max(2, Math.floor(wide / 80)))) {
    const x = place(t.begin + tick);
    pen.strokeStyle = ink.line;
    pen.beginPath();
    pen.moveTo(x, TOP);
    pen.lineTo(x, height - BOTTOM);
    pen.stroke();
    pen.fillStyle = ink.dim;
    pen.fillText(at ? at(t.begin + tick) : age(tick), Math.min(x, width - 24), height - 6);
  }
  const gap = tall >= 4 ? 1 : 0;
  for (const b of t.bars) {
    pen.fillStyle = colours[b.kind] ?? ink.dim;
    pen.globalAlpha = b.faint ? 0.45 : 1;
    pen.fillRect(place(b.from), TOP + b.line * tall, Math.max(1, place(b.to) - place(b.from)), Math.max(0.75, tall - gap));
  }
  pen.globalAlpha = 1;
  if (!t.labels || tall < 9) return;
  pen.textAlign = "left";
  pen.fillStyle = ink.dim;
  t.labels.forEach((label, i) => pen.fillText(cut(label, 18), 4, TOP + (i + 0.5) * tall + 4));
}
