/** The page that is shown and its parameters, which are in the URL, so that a link shows the same view. */
const base = location.pathname.replace(/\/ui\/.*$/, "/ui/");

function read(): { path: string[]; query: URLSearchParams } {
  const rest = location.pathname.slice(base.length);
  return { path: rest.split("/").filter(Boolean).map(decodeURIComponent), query: new URLSearchParams(location.search) };
}

/** Returns the code in the fragment of an address of `outbid ui`, and removes it from the address and the history. */
export function takeCode(): string {
  if (!location.hash.startsWith("#code=")) return "";
  const code = location.hash.slice("#code=".length);
  history.replaceState(null, "", location.pathname + location.search);
  return code;
}

class Router {
  #now = $state.raw(read());

  constructor() {
    window.addEventListener("popstate", () => (this.#now = read()));
  }

  get path(): string[] {
    return this.#now.path;
  }

  /** Returns a parameter of the view, or "" if it is not set. */
  param(name: string): string {
    return this.#now.query.get(name) ?? "";
  }

  /** Changes parameters of the view; "" removes one. The page stays. */
  set(values: Record<string, string>, replace = true): void {
    const query = new URLSearchParams(this.#now.query);
    for (const [k, v] of Object.entries(values)) {
      if (v === "") query.delete(k);
      else query.set(k, v);
    }
    const text = query.toString();
    const url = location.pathname + (text ? `?${text}` : "");
    history[replace ? "replaceState" : "pushState"](null, "", url);
    this.#now = read();
  }

  /** Shows the page of an address that href made. */
  go(url: string): void {
    history.pushState(null, "", url);
    this.#now = read();
    window.scrollTo(0, 0);
  }
}

export const router = new Router();

/** Returns the address of a page. */
export function href(parts: (string | number)[], query: Record<string, string> = {}): string {
  const text = new URLSearchParams(query).toString();
  return base + parts.map((p) => encodeURIComponent(p)).join("/") + (text ? `?${text}` : "");
}

/** Follows links of the pages without loading them again. */
export function followLinks(event: MouseEvent): void {
  if (event.defaultPrevented || event.button !== 0 || event.metaKey || event.ctrlKey || event.shiftKey || event.altKey) return;
  const link = event.target instanceof Element ? event.target.closest("a") : null;
  if (!link || link.target || link.origin !== location.origin || !link.pathname.startsWith(base) || link.hasAttribute("download")) return;
  event.preventDefault();
  router.go(link.pathname + link.search);
}
