import type uPlot from "uplot";

/**
 * Returns how uPlot draws the points of a series: squares of a size, and only one of those at the same pixel, so that hundreds of
 * thousands are drawn at once.
 */
export function dots(colour: string, size: number): uPlot.Series.Points {
  return {
    size,
    show: (u, series) => {
      const { left, top, width, height } = u.bbox;
      const xs = u.data[0], ys = u.data[series] ?? [];
      const x = place(u.scales["x"], left, width, false), y = place(u.scales["y"], top, height, true);
      const side = Math.max(1, Math.round(size * devicePixelRatio)), half = side / 2;
      const taken = new Uint8Array((Math.ceil(width) + 1) * (Math.ceil(height) + 1));
      u.ctx.save();
      u.ctx.beginPath();
      u.ctx.rect(left - half, top - half, width + side, height + side);
      u.ctx.clip();
      u.ctx.fillStyle = colour;
      for (let i = 0; i < xs.length; i++) {
        const v = ys[i];
        if (v === null || v === undefined) continue;
        const px = Math.round(x(xs[i] ?? 0)), py = Math.round(y(v));
        const at = (px - Math.floor(left)) + (py - Math.floor(top)) * (Math.ceil(width) + 1);
        if (px < left || py < top || taken[at] === 1) continue;
        taken[at] = 1;
        u.ctx.fillRect(px - half, py - half, side, side);
      }
      u.ctx.restore();
      return false;
    },
  };
}

/** Returns the pixel of a value of a scale. */
function place(scale: uPlot.Scale | undefined, begin: number, length: number, up: boolean): (v: number) => number {
  const log = scale?.distr === 3;
  const of = (v: number): number => (log ? Math.log(v) : v);
  const low = of(scale?.min ?? 0), high = of(scale?.max ?? 1);
  const factor = length / (high - low || 1);
  return up ? (v) => begin + length - (of(v) - low) * factor : (v) => begin + (of(v) - low) * factor;
}
