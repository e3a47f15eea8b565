import { root } from "./api";
import { caller } from "./caller.svelte";
import { shellWord } from "./text";

/** Returns the curl command of a call with a body, or without one if it is undefined. */
export function curl(method: "POST" | "PUT" | "DELETE", path: string, body?: unknown): string {
  const words = ["curl"];
  if (method !== "POST" || body === undefined) words.push("-X", method);
  if (caller.token) words.push('-H "Authorization: Bearer $OUTBID_TOKEN"');
  if (body !== undefined) words.push("-d", shellWord(JSON.stringify(body)));
  return [...words, shellWord(root + path)].join(" ");
}

/** Returns the Python expression for the client of this server. */
export function pythonClient(): string {
  return `ob.connect(${JSON.stringify(root.replace(/\/$/, ""))})`;
}
