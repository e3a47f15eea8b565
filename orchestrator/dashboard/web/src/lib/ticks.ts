/** Returns round numbers between two, at most about `most`; powers of ten on a logarithmic axis that has at least two. */
export function ticks(low: number, high: number, most: number, log = false): number[] {
  if (!Number.isFinite(low) || !Number.isFinite(high) || low > high) return [];
  if (low === high) return [low];
  if (log && low > 0) {
    const first = Math.ceil(Math.log10(low) - 1e-9), last = Math.floor(Math.log10(high) + 1e-9);
    const every = Math.max(1, Math.ceil((last - first + 1) / most));
    if (last > first) return Array.from({ length: Math.floor((last - first) / every) + 1 }, (_, i) => Number(`1e${first + i * every}`));
  }
  const rough = (high - low) / Math.max(1, most), size = 10 ** Math.floor(Math.log10(rough));
  const step = size * ([1, 2, 5, 10].find((n) => n * size >= rough) ?? 10);
  const found: number[] = [];
  for (let i = Math.ceil(low / step - 1e-9); i * step <= high + step * 1e-9 && found.length < 1000; i++) found.push(Number((i * step).toPrecision(12)));
  return found;
}
