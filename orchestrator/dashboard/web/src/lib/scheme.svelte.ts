const query = matchMedia("(prefers-color-scheme: dark)");
let dark = $state(query.matches);
query.addEventListener("change", () => (dark = query.matches));

/** Reports whether the page is dark. Canvases that depend on it are drawn again. */
export function isDark(): boolean {
  return dark;
}
