import { sleep, visible } from "./live.svelte";

// A browser opens six connections to a host without TLS, for all of its tabs together. Streams that follow something take at most
// four of them, so that reads never wait for a connection.
const STREAMS = 4;
// How long a hidden page keeps its stream, in milliseconds.
const HIDDEN = 30_000;
// How often a page without a stream reads, in milliseconds.
const EVERY = 3_000;

/**
 * Follows something while the page is visible: with `stream`, which lasts, or, where other tabs have all the streams, with
 * `read`, again and again. It returns after the stream, or after one read and a pause: call it again. Errors are thrown.
 */
export async function follow(
  signal: AbortSignal,
  stream: (signal: AbortSignal) => Promise<void>,
  read: (signal: AbortSignal) => Promise<void>,
): Promise<void> {
  await visible(signal);
  if (signal.aborted) return;
  const shown = untilHidden(signal);
  try {
    if (await withSlot(() => stream(shown.signal))) return;
    await read(signal);
    await sleep(EVERY, signal);
  } catch (e) {
    if (shown.signal.aborted && !signal.aborted) return; // hidden: the caller comes back and waits for the page to be seen
    throw e;
  } finally {
    shown.done();
  }
}

/** Calls work with one of the streams; false if other tabs have all of them. */
async function withSlot(work: () => Promise<void>): Promise<boolean> {
  if (!navigator.locks) {
    await work();
    return true;
  }
  for (let i = 0; i < STREAMS; i++) {
    const had = await navigator.locks.request(`outbid-stream-${i}`, { ifAvailable: true }, async (lock) => {
      if (lock) await work();
      return lock !== null;
    });
    if (had) return true;
  }
  return false;
}

/** Returns a signal that comes when the given one does, or once the page has been hidden for a while. */
function untilHidden(signal: AbortSignal): { signal: AbortSignal; done: () => void } {
  const stop = new AbortController();
  let timer: ReturnType<typeof setTimeout> | undefined;
  const look = (): void => {
    clearTimeout(timer);
    if (document.hidden) timer = setTimeout(() => stop.abort(), HIDDEN);
  };
  const end = (): void => stop.abort();
  document.addEventListener("visibilitychange", look);
  signal.addEventListener("abort", end);
  return {
    signal: stop.signal,
    done: () => {
      clearTimeout(timer);
      document.removeEventListener("visibilitychange", look);
      signal.removeEventListener("abort", end);
    },
  };
}
