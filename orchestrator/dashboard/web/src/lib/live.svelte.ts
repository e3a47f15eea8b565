import { ApiError } from "./api";

// An unused page whose data does not change reads this many times more rarely.
const RARELY = 4;
// A page is unused after this time without a key, a pointer event or the focus, in milliseconds.
const UNUSED = 30_000;
let used = 0;
for (const kind of ["pointermove", "pointerdown", "keydown", "wheel", "focus"]) {
  globalThis.addEventListener(kind, () => (used = performance.now()), { passive: true });
}

const unused = (): boolean => performance.now() - used > UNUSED;

/** Returns a text that is equal for answers that differ only in last_seen of nodes. */
const essence = (value: unknown): string => JSON.stringify(value, (key, part: unknown) => (key === "last_seen" ? undefined : part)) ?? "";

/** A value that is read repeatedly while the page is visible. Make one while a component is set up. */
export class Live<T> {
  value = $state.raw<T | undefined>(undefined);
  error = $state("");

  #wake: () => void = () => undefined;

  /** Reads again now. */
  again(): void {
    this.#wake();
  }

  constructor(read: (signal: AbortSignal) => Promise<T>, every: number) {
    $effect(() => {
      const stop = new AbortController();
      void this.#run(read, every, stop.signal);
      return () => stop.abort();
    });
  }

  async #run(read: (signal: AbortSignal) => Promise<T>, every: number, signal: AbortSignal): Promise<void> {
    for (let before = "", same = false; !signal.aborted; ) {
      try {
        const next = await read(signal), last = this.value;
        this.value = next;
        this.error = "";
        if (unused()) { // comparing takes long for large values
          const now = before !== "" && last === next ? before : essence(next);
          same = now === before;
          before = now;
        } else same = false;
      } catch (e) {
        if (signal.aborted) return;
        this.error = e instanceof Error ? e.message : String(e);
        if (e instanceof ApiError && e.status === 404) this.value = undefined;
      }
      const wake = new AbortController();
      this.#wake = () => wake.abort();
      const woken = AbortSignal.any([signal, wake.signal]);
      const rests = (): boolean => same && !woken.aborted && unused();
      for (let n = 0; n === 0 || (n < RARELY && rests()); n++) await sleep(every, woken);
      await visible(signal);
    }
  }
}

/** Waits for a time, or until a signal. */
export function sleep(ms: number, signal: AbortSignal): Promise<void> {
  return new Promise((done) => {
    if (signal.aborted) {
      done();
      return;
    }
    const timer = setTimeout(done, ms);
    signal.addEventListener("abort", () => {
      clearTimeout(timer);
      done();
    });
  });
}

/** Waits until the page is visible, or for a signal. */
export function visible(signal: AbortSignal): Promise<void> {
  return new Promise((done) => {
    const look = (): void => {
      if (!document.hidden || signal.aborted) {
        document.removeEventListener("visibilitychange", look);
        done();
      }
    };
    document.addEventListener("visibilitychange", look);
    signal.addEventListener("abort", look);
    look();
  });
}
