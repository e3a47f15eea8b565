import type uPlot from "uplot";
import { cut } from "./contour";
import type { Pen } from "./pen";
import type { Ink, Picture } from "./picture";
import { clean, short } from "./text";
import { ticks } from "./ticks";

/** The content of a chart, as options and data of uPlot. */
export interface Shown {
  title: string; x: string; series: uPlot.Series[]; data: uPlot.AlignedData; bands: uPlot.Band[]; marks: number[];
  labels: string[] | undefined; format: (x: number) => string;
}

interface Scale { min: number; max: number; log: boolean }

const LEFT = 64, RIGHT = 14, BOTTOM = 36, ROW = 15;

function scaleOf(scale: uPlot.Scale | undefined): Scale {
  return { min: scale?.min ?? 0, max: scale?.max ?? 1, log: scale?.distr === 3 };
}

/** Returns a chart as a picture that is drawn from its data, in the range that is on the screen. */
export function chartPicture(u: uPlot, shown: Shown): Picture {
  const x = scaleOf(u.scales["x"]), y = scaleOf(u.scales["y"]);
  const names = shown.series.filter((s) => s.class !== "unlisted");
  const legend = names.length > 1 && names.length < 13 ? names : [];
  const width = Math.max(360, u.width), columns = Math.max(1, Math.floor((width - LEFT) / 150));
  const top = 10 + ROW * Math.ceil(legend.length / columns), height = u.height + top;
  const of = (s: Scale, v: number): number => (s.log ? Math.log(v / s.min) / Math.log(s.max / s.min) : (v - s.min) / (s.max - s.min || 1));
  const place = { x: (v: number) => LEFT + of(x, v) * (width - LEFT - RIGHT), y: (v: number) => height - BOTTOM - of(y, v) * (height - top - BOTTOM) };

  const draw = (pen: Pen, ink: Ink): void => {
    pen.font = "11px system-ui";
    pen.lineWidth = 1;
    axes(pen, ink);
    shown.bands.forEach((b) => band(pen, b));
    shown.series.forEach((s, i) => line(pen, s, (shown.data[i + 1] ?? []) as (number | null | undefined)[]));
    pen.setLineDash([]);
    legend.forEach((s, i) => {
      const at = LEFT + (i % columns) * 150, base = 14 + ROW * Math.floor(i / columns);
      pen.fillStyle = String(s.stroke);
      pen.fillRect(at, base - 9, 10, 10);
      pen.fillStyle = ink.text;
      pen.textAlign = "left";
      pen.fillText(cut(clean(String(s.label)), 21), at + 15, base);
    });
  };

  function axes(pen: Pen, ink: Ink): void {
    const across = shown.labels ? shown.labels.map((_, i) => i) : ticks(x.min, x.max, Math.max(2, Math.floor(width / 90)), x.log);
    const up = ticks(y.min, y.max, Math.max(2, Math.floor((height - top) / 36)), y.log);
    pen.strokeStyle = ink.line;
    pen.beginPath();
    for (const v of across) { pen.moveTo(place.x(v), top); pen.lineTo(place.x(v), height - BOTTOM); }
    for (const v of up) { pen.moveTo(LEFT, place.y(v)); pen.lineTo(width - RIGHT, place.y(v)); }
    pen.stroke();
    pen.fillStyle = ink.dim;
    pen.textAlign = "center";
    for (const v of across) pen.fillText(shown.labels ? cut(clean(shown.labels[v] ?? ""), 12) : shown.format(v), place.x(v), height - BOTTOM + 14);
    pen.fillText(cut(clean(shown.x), 60), LEFT + (width - LEFT - RIGHT) / 2, height - 6);
    pen.textAlign = "right";
    for (const v of up) pen.fillText(short(v), LEFT - 6, place.y(v) + 4);
    pen.strokeStyle = ink.dim;
    pen.setLineDash([4, 4]);
    pen.beginPath();
    for (const v of shown.marks.filter((m) => m >= x.min && m <= x.max)) { pen.moveTo(place.x(v), top); pen.lineTo(place.x(v), height - BOTTOM); }
    pen.stroke();
    pen.setLineDash([]);
  }

  /** Returns the values of a series that are in view, as places; those above and below are moved to the border. */
  function places(values: readonly (number | null | undefined)[]): [number, number][] {
    const found: [number, number][] = [];
    const xs = shown.data[0];
    for (let i = 0; i < xs.length; i++) {
      const at = xs[i] ?? NaN, v = values[i];
      if (v === null || v === undefined || !(at >= x.min && at <= x.max) || Number.isNaN(v)) continue;
      found.push([place.x(at), place.y(Math.min(y.max, Math.max(y.min, v)))]);
    }
    return found;
  }

  function trace(pen: Pen, points: [number, number][]): void {
    points.forEach(([a, b], i) => (i === 0 ? pen.moveTo(a, b) : pen.lineTo(a, b)));
  }

  function band(pen: Pen, b: uPlot.Band): void {
    const [high, low] = b.series.map((i) => places((shown.data[i] ?? []) as (number | null | undefined)[]));
    pen.fillStyle = String(b.fill);
    pen.beginPath();
    trace(pen, [...(high ?? []), ...(low ?? []).toReversed()]);
    pen.closePath();
    pen.fill();
  }

  function line(pen: Pen, s: uPlot.Series, values: (number | null | undefined)[]): void {
    const points = places(values);
    if (s.paths) { // only its points are drawn
      const size = s.points?.size ?? 4, taken = new Set<number>();
      pen.fillStyle = String(s.stroke);
      for (const [a, b] of points) {
        const pixel = Math.round(a) * 10_000 + Math.round(b);
        if (taken.has(pixel) || taken.size >= 20_000) continue;
        taken.add(pixel);
        pen.fillRect(a - size / 2, b - size / 2, size, size);
      }
      return;
    }
    pen.strokeStyle = String(s.stroke);
    pen.lineWidth = s.width ?? 1;
    pen.setLineDash(s.dash ?? []);
    pen.beginPath();
    trace(pen, points);
    pen.stroke();
  }

  return { title: shown.title, width, height, draw };
}
