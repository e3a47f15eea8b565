import { ApiError, at, get, stream } from "./api";
import type { GetSweepResponse, ListTrialsResponse, Sweep, Trial, WatchSweepResponse } from "./api.gen";
import { sleep } from "./live.svelte";
import { follow } from "./streams";

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
      const take = (m: Pick<WatchSweepResponse, "sweep" | "trials">): void => {
        wait = 500;
        this.#take(m);
      };
      try {
        await follow(signal, async (shown) => {
          await stream<WatchSweepResponse>(at(["v1", "sweeps", id, "watch"]), shown, take);
          if (!signal.aborted) await sleep(5000, signal); // it has ended; an extension is seen by the next stream
        }, (shown) => readAll(id, shown, take));
      } catch (e) {
        if (signal.aborted) return;
        this.missing = e instanceof ApiError && e.status === 404;
        this.error = e instanceof Error ? e.message : String(e);
        await sleep(wait, signal);
      }
    }
  }

  #take(m: Pick<WatchSweepResponse, "sweep" | "trials">): void {
    for (const t of m.trials) this.#known.set(t.number, t);
    if (m.sweep) this.sweep = m.sweep;
    this.error = "";
    this.#due ||= requestAnimationFrame(() => {
      this.#due = 0;
      this.trials = [...this.#known.values()].sort((a, b) => a.number - b.number);
    });
  }
}

/** Reads a sweep and all of its trials once. */
async function readAll(id: string, signal: AbortSignal, take: (m: Pick<WatchSweepResponse, "sweep" | "trials">) => void): Promise<void> {
  const { sweep } = await get<GetSweepResponse>(at(["v1", "sweeps", id]), signal);
  for (let page = ""; ; ) {
    const got = await get<ListTrialsResponse>(at(["v1", "sweeps", id, "trials"], { page_token: page }), signal);
    take({ sweep, trials: got.trials });
    page = got.next_page_token;
    if (page === "") return;
  }
}
