/** Paul Tol's bright colours, which people with any colour vision tell apart. */
export const LINES = ["#4477aa", "#ee6677", "#228833", "#ccbb44", "#66ccee", "#aa3377", "#bbbbbb"];

const CIVIDIS: [number, number, number][] = [[0, 32, 77], [65, 77, 107], [124, 123, 120], [187, 173, 108], [255, 234, 70]];

/** Returns a colour of the cividis scale for a share between 0 and 1. */
export function scale(share: number): string {
  const x = Math.min(1, Math.max(0, Number.isNaN(share) ? 0 : share)) * (CIVIDIS.length - 1);
  const i = Math.min(Math.floor(x), CIVIDIS.length - 2);
  const a = CIVIDIS[i] ?? [0, 0, 0], b = CIVIDIS[i + 1] ?? [0, 0, 0];
  const mix = (k: 0 | 1 | 2): number => Math.round(a[k] + (b[k] - a[k]) * (x - i));
  return `rgb(${mix(0)} ${mix(1)} ${mix(2)})`;
}

/** Returns a colour of the page's style sheet. */
export function styled(element: Element, name: string): string {
  return getComputedStyle(element).getPropertyValue(name);
}

/** Returns the computed value of a CSS expression, because canvases do not know light-dark(). */
export function resolve(element: HTMLElement, name: string): string {
  const probe = document.createElement("span");
  probe.style.color = `var(${name})`;
  element.append(probe);
  const colour = getComputedStyle(probe).color;
  probe.remove();
  return colour;
}
