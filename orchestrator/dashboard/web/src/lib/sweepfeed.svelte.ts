import { ApiError, bytes } from "./api";
import type { Sweep } from "./api.gen";
import { columnsOf, takeEarly } from "./early";
import { sleep } from "./live.svelte";
import { follow } from "./streams";
import { type Piece, readFrames, TrialStore } from "./trialstore";

/** The number of trials from which the page is drawn in parts. With more trials it is drawn at most every PAUSE milliseconds. */
export const MANY = 5000;
const PAUSE = 1000;

/** A sweep and its trials, kept up to date by a stream. Make one while a component is set up. */
export class SweepFeed {
  sweep = $state.raw<Sweep | undefined>(undefined);
  /** The trials. The store is changed in place: what depends on it reads this object, which is a new one after each change. */
  trials = $state.raw<{ store: TrialStore; rows: number }>({ store: new TrialStore(), rows: 0 });
  error = $state("");
  missing = $state(false);

  #store = new TrialStore();
  #newest: Sweep | undefined;
  #version = "";
  #due: ReturnType<typeof setTimeout> | undefined;
  #drawn = -Infinity; // when the page was last drawn
  #wake = (): void => undefined;

  constructor(id: () => string) {
    $effect(() => {
      const stop = new AbortController();
      this.#store = new TrialStore();
      this.#version = "";
      this.#drawn = -Infinity; // the first draw waits for nothing
      this.#newest = this.sweep = undefined;
      this.trials = { store: this.#store, rows: 0 };
      this.missing = false;
      void this.#run(id(), stop.signal);
      return () => {
        stop.abort();
        clearTimeout(this.#due);
        this.#due = undefined;
      };
    });
  }

  /** Reads an ended sweep again at once, because a person changed it. */
  again(): void {
    this.#wake();
  }

  async #run(id: string, signal: AbortSignal): Promise<void> {
    const early = await takeEarly(id);
    if (early) await readFrames(early, (...frame) => signal.aborted || this.#take(...frame)).catch(() => undefined);
    for (let wait = 500; !signal.aborted; wait = Math.min(2 * wait, 10000)) {
      const read = async (lasting: boolean, shown: AbortSignal): Promise<void> => {
        await readFrames(await bytes(columnsOf(id, this.#version, lasting), shown), (piece, data, begin) => {
          wait = 500;
          this.#take(piece, data, begin);
        });
      };
      try {
        await follow(signal, async (shown) => {
          await read(true, shown);
          // It has ended. An extension is seen by the next stream.
          if (!signal.aborted) await Promise.race([sleep(5000, signal), new Promise<void>((go) => (this.#wake = go))]);
        }, (shown) => read(false, shown));
      } catch (e) {
        if (signal.aborted) return;
        this.missing = e instanceof ApiError && e.status === 404;
        this.error = e instanceof Error ? e.message : String(e);
        await sleep(wait, signal);
      }
    }
  }

  #take(piece: Piece, data: ArrayBuffer, begin: number): void {
    // The page shows the old table until the new one is complete.
    if (piece.whole) this.#store = new TrialStore();
    this.#store.put(piece, data, begin);
    if (piece.sweep) this.#newest = piece.sweep;
    this.#version = piece.version ?? "";
    if (this.#version === "") return; // more pieces follow
    this.error = "";
    const pause = this.#store.rows > MANY ? PAUSE : 16;
    this.#due ??= setTimeout(() => {
      this.#due = undefined;
      this.#drawn = performance.now();
      this.sweep = this.#newest;
      this.trials = { store: this.#store, rows: this.#store.rows };
    }, Math.max(0, this.#drawn + pause - performance.now()));
  }
}
