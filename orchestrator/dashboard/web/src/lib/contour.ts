import { scale } from "./colours";
import type { Column } from "./columns";
import type { Ink } from "./picture";
import type { Pen } from "./pen";
import { short } from "./text";
import { ticks } from "./ticks";

/** An axis that is divided into cells: a range, or the names of a choice. */
export interface CellAxis { low: number; high: number; log: boolean; names: string[]; cells: number }

/** The trials of a sweep by the values of two parameters. Cells are numbered from the lower left, row by row. */
export interface Grid { x: CellAxis; y: CellAxis; trials: Uint32Array; value: Float64Array; low: number; high: number; used: number }

const MOST = 48; // cells of an axis

/** Returns how many cells an axis of numbers has, so that few trials do not make a grid of holes. */
function resolution(trials: number): number {
  return Math.max(4, Math.min(MOST, Math.round(Math.sqrt(trials / 3))));
}

function axisOf(rows: Uint32Array, column: Column, log: boolean): { axis: CellAxis; cell: (row: number) => number } {
  if (!column.numeric) {
    const found = new Set<string>();
    for (const row of rows) found.add(column.text(row));
    found.delete("");
    const names = [...found].sort().slice(0, MOST), index = new Map(names.map((n, i) => [n, i]));
    return { axis: { low: -0.5, high: names.length - 0.5, log: false, names, cells: Math.max(1, names.length) }, cell: (row) => index.get(column.text(row)) ?? -1 };
  }
  let low = Infinity, high = -Infinity, whole = true;
  for (const row of rows) {
    const v = column.number(row);
    if (!Number.isFinite(v) || (log && v <= 0)) continue;
    if (v < low) low = v;
    if (v > high) high = v;
    whole = whole && Number.isInteger(v);
  }
  if (low > high) [low, high] = [0, 1];
  let cells = resolution(rows.length);
  if (whole && !log && high - low < cells) {
    cells = high - low + 1; // a cell for each whole number
    low -= 0.5;
    high += 0.5;
  } else if (low === high) [low, high] = log ? [low / 2, low * 2] : [low - 0.5, high + 0.5];
  const from = log ? Math.log(low) : low, size = ((log ? Math.log(high) : high) - from) / cells;
  return { axis: { low, high, log, names: [], cells }, cell: (row) => {
    const v = column.number(row);
    if (!Number.isFinite(v) || (log && v <= 0)) return -1;
    return Math.min(cells - 1, Math.max(0, Math.floor(((log ? Math.log(v) : v) - from) / size)));
  } };
}

/** Returns the mean or the best metric of the trials in each cell of two parameters. */
export function grid(rows: Uint32Array, x: Column, y: Column, metric: Column, options: { logX: boolean; logY: boolean; best: boolean; max: boolean }): Grid {
  const across = axisOf(rows, x, options.logX), up = axisOf(rows, y, options.logY);
  const size = across.axis.cells * up.axis.cells;
  const trials = new Uint32Array(size), value = new Float64Array(size).fill(NaN);
  let used = 0;
  for (const row of rows) {
    const v = metric.number(row), i = across.cell(row), j = up.cell(row);
    if (!Number.isFinite(v) || i < 0 || j < 0) continue;
    const at = j * across.axis.cells + i, before = value[at] ?? NaN, n = (trials[at] = (trials[at] ?? 0) + 1);
    used++;
    if (n === 1) value[at] = v;
    else if (options.best) value[at] = options.max ? Math.max(before, v) : Math.min(before, v);
    else value[at] = before + (v - before) / n;
  }
  const held = value.filter((v) => !Number.isNaN(v)).sort();
  // The worst tenth of the cells has one colour, so that outliers do not hide the differences of the others.
  const part = (share: number): number => held[Math.min(held.length - 1, Math.floor(share * held.length))] ?? NaN;
  return { x: across.axis, y: up.axis, trials, value, used, low: options.max ? part(0.1) : part(0), high: options.max ? part(1) : part(0.9) };
}

/** Returns the range of a cell of an axis, or its name. */
export function rangeOf(axis: CellAxis, cell: number): [number, number] | string {
  if (axis.names.length > 0) return axis.names[cell] ?? "";
  const at = (i: number): number => (axis.log ? axis.low * (axis.high / axis.low) ** (i / axis.cells) : axis.low + ((axis.high - axis.low) * i) / axis.cells);
  return [at(cell), at(cell + 1)];
}

/** Returns the numbers of the cells with the best values, the best first. */
export function bestCells(g: Grid, max: boolean, n: number): number[] {
  const held = [...g.value.keys()].filter((i) => (g.trials[i] ?? 0) > 0);
  return held.sort((a, b) => ((g.value[a] ?? 0) - (g.value[b] ?? 0)) * (max ? -1 : 1)).slice(0, n);
}

const LEFT = 64, RIGHT = 78, TOP = 20, BOTTOM = 36;

/** Returns the cell at a point of the picture; -1 outside. */
export function cellAt(g: Grid, x: number, y: number, width: number, height: number): number {
  const i = Math.floor(((x - LEFT) / (width - LEFT - RIGHT)) * g.x.cells), j = Math.floor(((height - BOTTOM - y) / (height - TOP - BOTTOM)) * g.y.cells);
  return i >= 0 && i < g.x.cells && j >= 0 && j < g.y.cells ? j * g.x.cells + i : -1;
}

/** Draws a grid with its axes and the scale of its colours. */
export function drawGrid(pen: Pen, ink: Ink, g: Grid, names: { x: string; y: string; metric: string; max: boolean }, width: number, height: number): void {
  const wide = (width - LEFT - RIGHT) / g.x.cells, tall = (height - TOP - BOTTOM) / g.y.cells;
  const shareOf = (v: number): number => (g.high > g.low ? (v - g.low) / (g.high - g.low) : 1);
  const colour = (v: number): string => scale(names.max ? shareOf(v) : 1 - shareOf(v));
  for (let at = 0; at < g.value.length; at++) {
    if ((g.trials[at] ?? 0) === 0) continue;
    pen.fillStyle = colour(g.value[at] ?? 0);
    const i = at % g.x.cells, j = Math.floor(at / g.x.cells);
    pen.fillRect(LEFT + i * wide, height - BOTTOM - (j + 1) * tall, wide + 0.5, tall + 0.5);
  }
  pen.font = "11px system-ui";
  pen.fillStyle = ink.dim;
  pen.strokeStyle = ink.line;
  pen.lineWidth = 1;
  pen.beginPath();
  pen.moveTo(LEFT, TOP);
  pen.lineTo(LEFT, height - BOTTOM);
  pen.lineTo(width - RIGHT, height - BOTTOM);
  pen.stroke();
  pen.textAlign = "center";
  for (const [share, label] of labelsOf(g.x, Math.max(2, Math.floor((width - LEFT - RIGHT) / 70)))) pen.fillText(label, LEFT + share * (width - LEFT - RIGHT), height - BOTTOM + 14);
  pen.textAlign = "right";
  for (const [share, label] of labelsOf(g.y, Math.max(2, Math.floor((height - TOP - BOTTOM) / 36)))) pen.fillText(label, LEFT - 5, height - BOTTOM - share * (height - TOP - BOTTOM) + 4);
  pen.fillStyle = ink.text;
  pen.textAlign = "center";
  pen.fillText(cut(names.x, 40), LEFT + (width - LEFT - RIGHT) / 2, height - 6);
  pen.textAlign = "left";
  pen.fillText(cut(names.y, 40), 4, 11);
  drawScale(pen, ink, g, colour, names, width, height);
}

function drawScale(pen: Pen, ink: Ink, g: Grid, colour: (v: number) => string, names: { metric: string; max: boolean }, width: number, height: number): void {
  const left = width - RIGHT + 14, tall = Math.min(140, height - TOP - BOTTOM - 40), parts = 24;
  for (let i = 0; i < parts; i++) {
    pen.fillStyle = colour(g.low + ((g.high - g.low) * (parts - 1 - i)) / (parts - 1));
    pen.fillRect(left, TOP + 28 + (i * tall) / parts, 12, tall / parts + 0.5);
  }
  pen.fillStyle = ink.text;
  pen.textAlign = "left";
  pen.fillText(cut(names.metric, 10), left, TOP + 4);
  pen.fillStyle = ink.dim;
  pen.fillText(`${names.max ? "" : "≥ "}${short(g.high)}`, left, TOP + 22);
  pen.fillText(`${names.max ? "≤ " : ""}${short(g.low)}`, left, TOP + 28 + tall + 13);
}

/** Returns the places of an axis, as shares of its length, that have labels. */
function labelsOf(axis: CellAxis, most: number): [number, string][] {
  if (axis.names.length > 0) {
    const every = Math.ceil(axis.names.length / most);
    return axis.names.map((n, i) => [(i + 0.5) / axis.cells, cut(n, 9)] as [number, string]).filter((_, i) => i % every === 0);
  }
  const share = (v: number): number => (axis.log ? Math.log(v / axis.low) / Math.log(axis.high / axis.low) : (v - axis.low) / (axis.high - axis.low));
  return ticks(axis.low, axis.high, most, axis.log).map((v) => [share(v), short(v)]);
}

/** Returns a text that has at most n characters. */
export function cut(text: string, n: number): string {
  return text.length <= n ? text : `${text.slice(0, n - 1)}…`;
}
