import { at, bytes } from "./api";

/**
 * The trials of the sweep whose page is opened. They are asked for before the pages' code runs, so main.ts imports this
 * module first. A request that fails gives undefined: the page asks again, and shows what is wrong.
 */
let asked = ask();

function ask(): { id: string; answer: Promise<Response | undefined> } | undefined {
  const id = /\/ui\/sweeps\/([^/]+)\/?$/.exec(location.pathname)?.[1];
  if (id === undefined || location.hash.startsWith("#code=")) return undefined;
  const name = decodeURIComponent(id);
  return { id: name, answer: bytes(columnsOf(name), new AbortController().signal).catch(() => undefined) };
}

/** Returns the path of a sweep's trials, from the first or since a version. */
export function columnsOf(id: string, since = "", follow = false): string {
  return at(["v1", "sweeps", id, "columns"], { since, follow: follow || undefined });
}

/** Returns the answer to the early request for a sweep, once. */
export async function takeEarly(id: string): Promise<Response | undefined> {
  const early = asked;
  asked = undefined;
  return early?.id === id ? early.answer : undefined;
}
