import type { SimulatedRun, SimulatedSweep } from "./api.gen";
import { num } from "./text";

/** The outcome of a sweep in a run: seconds to its end, rho and mean number of devices. NaN if unknown. */
export interface Fate { seconds: number; rho: number; devices: number }

/** Returns the outcome of a sweep. */
export function fate(s: SimulatedSweep | undefined): Fate {
  const seconds = num(s?.seconds);
  return { seconds, rho: num(s?.rho), devices: seconds > 0 ? num(s?.device_seconds) / seconds : NaN };
}

/** Returns the name of a run. */
export function title(run: SimulatedRun): string {
  if (run.policy === "") return "what happened";
  return num(run.weight) > 0 ? `${run.policy}, weight ${num(run.weight)}` : run.policy;
}

/** Returns the means of a run over the sweeps that ended in every run, so that runs can be compared, and their number. */
export function means(runs: SimulatedRun[]): { sweeps: number; of: Fate[] } {
  const rows = runs[0]?.sweeps.length ?? 0;
  const ended = Array.from({ length: rows }, (_, i) => i).filter((i) => runs.every((r) => num(r.sweeps[i]?.seconds) >= 0));
  const mean = (values: number[]): number => (values.length === 0 ? NaN : values.reduce((a, b) => a + b, 0) / values.length);
  const of = runs.map((r) => {
    const all = ended.map((i) => fate(r.sweeps[i]));
    return { seconds: mean(all.map((f) => f.seconds)), rho: mean(all.map((f) => f.rho)), devices: mean(all.map((f) => f.devices)) };
  });
  return { sweeps: ended.length, of };
}

/** Returns a change against another number in percent, or "" if it is unknown or small. */
export function change(now: number, other: number): string {
  const percent = Math.round(100 * (now / other - 1));
  return !Number.isFinite(percent) || percent === 0 ? "" : `${percent > 0 ? "+" : "−"}${Math.abs(percent)} %`;
}
