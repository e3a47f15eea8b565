import { ApiError, at, stream } from "./api";
import type { Sweep, Trial, WatchSweepResponse } from "./api.gen";
import { sleep, visible } from "./live.svelte";

/** A sweep and its trials, kept up to date by a stream. Make one while a component is set up. */
export class SweepFeed {
  sweep = $state.raw<Sweep | undefined>(undefined);
  /** By number. The list is a new one after each change. */
  trials = $state.raw<Trial[]>([]);
  error = $state("");
  missing = $state(false);

  #known = new Map<number, Trial>();
  #due = 0;

  constructor(id: () => string) {
    $effect(() => {
      const stop = new AbortController();
      this.#known.clear();
      this.sweep = undefined;
      this.trials = [];
      this.missing = false;
      void this.#run(id(), stop.signal);
      return () => {
        stop.abort();
        cancelAnimationFrame(this.#due);
        this.#due = 0;
      };
    });
  }

  async #run(id: string, signal: AbortSignal): Promise<void> {
    for (let wait = 500; !signal.aborted; wait = Math.min(2 * wait, 10000)) {
      try {
        await stream<WatchSweepResponse>(at(["v1", "sweeps", id, "watch"]), signal, (m) => {
          wait = 500;
          this.#take(m);
        });
        if (!signal.aborted) await sleep(5000, signal); // it has ended; an extension is seen by the next stream
      } catch (e) {
        if (signal.aborted) return;
        this.missing = e instanceof ApiError && e.status === 404;
        this.error = e instanceof Error ? e.message : String(e);
        await sleep(wait, signal);
      }
      await visible(signal);
    }
  }

  #take(m: WatchSweepResponse): void {
    for (const t of m.trials) this.#known.set(t.number, t);
    if (m.sweep) this.sweep = m.sweep;
    this.error = "";
    this.#due ||= requestAnimationFrame(() => {
      this.#due = 0;
      this.trials = [...this.#known.values()].sort((a, b) => a.number - b.number);
    });
  }
}
