import { ApiError } from "./api";

/** A value that is read again and again while the page is visible. Make one while a component is set up. */
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
    while (!signal.aborted) {
      try {
        this.value = await read(signal);
        this.error = "";
      } catch (e) {
        if (signal.aborted) return;
        this.error = e instanceof Error ? e.message : String(e);
        if (e instanceof ApiError && e.status === 404) this.value = undefined;
      }
      const next = new AbortController();
      this.#wake = () => next.abort();
      await sleep(every, AbortSignal.any([signal, next.signal]));
      await visible(signal);
    }
  }
}

/** Waits for a time, or until a signal. */
export function sleep(ms: number, signal: AbortSignal): Promise<void> {
  return new Promise((done) => {
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
