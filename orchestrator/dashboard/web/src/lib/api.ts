/** An error response of the server. */
export class ApiError extends Error {
  constructor(
    readonly status: number,
    readonly code: string,
    message: string,
  ) {
    super(message);
  }
}

/** The URL of the server, which may be behind a path prefix: the pages are below PREFIX/ui/. */
export const root = new URL(location.pathname.replace(/\/ui\/.*$/, "/"), location.origin).href;

/** Tells listeners that the server wants a token. */
export const unauthenticated = new EventTarget();

async function failure(answer: Response): Promise<ApiError> {
  let body: { code?: string; message?: string } = {};
  try {
    body = (await answer.json()) as typeof body;
  } catch {
    // a proxy's page
  }
  const error = new ApiError(answer.status, body.code ?? "UNKNOWN", body.message ?? `${answer.status} ${answer.statusText}`);
  if (answer.status === 401) unauthenticated.dispatchEvent(new Event("needed"));
  return error;
}

async function call(path: string, init: RequestInit): Promise<Response> {
  let answer: Response;
  try {
    answer = await fetch(root + path, { credentials: "same-origin", ...init });
  } catch (e) {
    if (e instanceof DOMException && e.name === "AbortError") throw e;
    throw new ApiError(0, "UNAVAILABLE", "the server does not answer");
  }
  if (!answer.ok && answer.status !== 304) throw await failure(answer);
  return answer;
}

/** Reads a path of the API, such as "v1/sweeps". */
export async function get<T>(path: string, signal?: AbortSignal): Promise<T> {
  return (await (await call(path, { signal: signal ?? null })).json()) as T;
}

/** An answer that is the same object as long as the server says that nothing has changed. */
export interface Known<T> { tag: string; value: T }

/** Reads a path of the API whose answers have an ETag, and returns the answer before if it is still the same. */
export async function getAgain<T>(path: string, before: Known<T> | undefined, signal: AbortSignal): Promise<Known<T>> {
  const answer = await call(path, { signal, headers: before?.tag ? { "If-None-Match": before.tag } : {} });
  if (answer.status === 304 && before) return before;
  return { tag: answer.headers.get("ETag") ?? "", value: (await answer.json()) as T };
}

/** Reads a path that answers with bytes. */
export async function bytes(path: string, signal: AbortSignal): Promise<Response> {
  return call(path, { signal, headers: { Accept: "application/octet-stream" } });
}

/** Sends a body to a path of the API. */
export async function send<T>(method: "POST" | "PUT" | "DELETE", path: string, body?: unknown): Promise<T> {
  const init: RequestInit = { method };
  if (body !== undefined) {
    init.body = JSON.stringify(body);
    init.headers = { "Content-Type": "application/json" };
  }
  const answer = await call(path, init);
  const text = await answer.text();
  return (text ? JSON.parse(text) : {}) as T;
}

/** Sends a sweep's file to a path of the API. */
export async function sendFile<T>(path: string, file: string): Promise<T> {
  return (await (await call(path, { method: "POST", body: file, headers: { "Content-Type": "application/yaml" } })).json()) as T;
}

/** Calls take for each message of a stream, until it ends. */
export async function stream<T>(path: string, signal: AbortSignal, take: (message: T) => void): Promise<void> {
  const answer = await call(path, { signal });
  const reader = answer.body?.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const piece = await reader?.read();
    if (!piece || piece.done) return;
    const lines = (rest + piece.value).split("\n");
    rest = lines.pop() ?? "";
    for (const line of lines) {
      if (line === "") continue;
      const message = JSON.parse(line) as { result?: T; code?: string; message?: string };
      if (message.result === undefined) throw new ApiError(503, message.code ?? "UNAVAILABLE", message.message ?? "the stream ended");
      take(message.result);
    }
  }
}

/** Returns a path with its parts escaped and the parameters that are set. */
export function at(parts: (string | number)[], query: Record<string, string | number | boolean | undefined> = {}): string {
  const path = parts.map((p) => encodeURIComponent(p)).join("/");
  const q = Object.entries(query).filter(([, v]) => v !== undefined && v !== "");
  return q.length === 0 ? path : `${path}?${q.map(([k, v]) => `${k}=${encodeURIComponent(String(v))}`).join("&")}`;
}
