import { clean } from "./text";

/** The methods that draw charts, on a canvas or into a picture in SVG. */
export type Pen = Pick<CanvasRenderingContext2D, "beginPath" | "moveTo" | "lineTo" | "closePath" | "stroke" | "fill" | "fillRect"
  | "fillText" | "setLineDash" | "strokeStyle" | "fillStyle" | "globalAlpha" | "lineWidth" | "font" | "textAlign">;

/** Returns text as XML. Characters that XML does not allow are made visible. */
export function xml(text: string): string {
  return clean(text).replace(/[&<>"']/g, (c) => `&#${c.charCodeAt(0)};`).replace(/[\uFFFE\uFFFF]|[\uD800-\uDBFF](?![\uDC00-\uDFFF])|(?<![\uD800-\uDBFF])[\uDC00-\uDFFF]/g, "\uFFFD");
}

/** Returns a colour as #rrggbb, which every viewer of SVG reads, and its opacity. */
export function colourOf(colour: string): [string, number] {
  const hex = /^#([0-9a-f]{6})([0-9a-f]{2})?$/i.exec(colour);
  if (hex) return [`#${hex[1] ?? ""}`, hex[2] === undefined ? 1 : parseInt(hex[2], 16) / 255];
  const parts = /^rgba?\(([^)]*)\)$/.exec(colour)?.[1]?.split(/[\s,/]+/).filter(Boolean).map(Number) ?? [];
  if (parts.length < 3 || parts.some(Number.isNaN)) return ["#808080", 1];
  return [`#${parts.slice(0, 3).map((v) => Math.round(v).toString(16).padStart(2, "0")).join("")}`, parts[3] ?? 1];
}

const at = (v: number): string => String(Math.round(v * 100) / 100);

/** Draws into a text of SVG. */
export class SvgPen implements Pen {
  strokeStyle: Pen["strokeStyle"] = "#000000";
  fillStyle: Pen["fillStyle"] = "#000000";
  globalAlpha = 1;
  lineWidth = 1;
  font = "11px system-ui";
  textAlign: CanvasTextAlign = "left";
  readonly #parts: string[] = [];
  #path = "";
  #dash: number[] = [];

  beginPath(): void { this.#path = ""; }
  moveTo(x: number, y: number): void { this.#path += `M${at(x)} ${at(y)}`; }
  lineTo(x: number, y: number): void { this.#path += `L${at(x)} ${at(y)}`; }
  closePath(): void { this.#path += "Z"; }
  setLineDash(dash: Iterable<number>): void { this.#dash = [...dash]; }

  stroke(): void {
    const [colour, opacity] = colourOf(String(this.strokeStyle));
    const dash = this.#dash.length > 0 ? ` stroke-dasharray="${this.#dash.map(at).join(" ")}"` : "";
    if (this.#path !== "") this.#parts.push(`<path d="${this.#path}" fill="none" stroke="${colour}" stroke-width="${at(this.lineWidth)}"${this.#opacity("stroke-opacity", opacity)}${dash}/>`);
  }

  fill(): void {
    const [colour, opacity] = colourOf(String(this.fillStyle));
    if (this.#path !== "") this.#parts.push(`<path d="${this.#path}" fill="${colour}"${this.#opacity("fill-opacity", opacity)}/>`);
  }

  fillRect(x: number, y: number, width: number, height: number): void {
    const [colour, opacity] = colourOf(String(this.fillStyle));
    this.#parts.push(`<rect x="${at(x)}" y="${at(y)}" width="${at(width)}" height="${at(height)}" fill="${colour}"${this.#opacity("fill-opacity", opacity)}/>`);
  }

  fillText(text: string, x: number, y: number): void {
    const [colour, opacity] = colourOf(String(this.fillStyle));
    const anchor = { center: "middle", right: "end", end: "end", left: "start", start: "start" }[this.textAlign];
    const size = /^(?:bold )?([\d.]+)px/.exec(this.font)?.[1] ?? "11";
    this.#parts.push(`<text x="${at(x)}" y="${at(y)}" font-size="${size}" text-anchor="${anchor}" fill="${colour}"${this.#opacity("fill-opacity", opacity)}>${xml(text)}</text>`);
  }

  #opacity(name: string, own: number): string {
    const opacity = own * this.globalAlpha;
    return opacity < 1 ? ` ${name}="${at(opacity)}"` : "";
  }

  /** Returns the picture. */
  picture(title: string, width: number, height: number): string {
    const size = `width="${at(width)}" height="${at(height)}" viewBox="0 0 ${at(width)} ${at(height)}"`;
    return `<svg xmlns="http://www.w3.org/2000/svg" ${size} font-family="system-ui, sans-serif"><title>${xml(title)}</title>\n${this.#parts.join("\n")}\n</svg>\n`;
  }
}
