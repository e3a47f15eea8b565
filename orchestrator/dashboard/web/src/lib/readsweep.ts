import { bytes } from "./api";
import type { Sweep } from "./api.gen";
import type { Compared } from "./compared";
import { columnsOf } from "./early";
import { readFrames, TrialStore } from "./trialstore";

/** Reads a sweep and its trials once. */
export async function readSweep(id: string, signal: AbortSignal): Promise<Compared> {
  const store = new TrialStore();
  let sweep: Sweep | undefined;
  await readFrames(await bytes(columnsOf(id), signal), (piece, data, begin) => {
    store.put(piece, data, begin);
    if (piece.sweep) sweep = piece.sweep;
  });
  if (!sweep) throw new Error(`the server sent no sweep ${id}`);
  return { sweep, store, rows: store.rows };
}
