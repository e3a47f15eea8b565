import { resolve } from "./colours";
import { type Pen, SvgPen } from "./pen";
import { save } from "./text";

/** The colours of a picture, which are those of the page. */
export interface Ink { text: string; dim: string; line: string; background: string }

/** Something that is drawn, on the screen or into a file, with the same code. */
export interface Picture { title: string; width: number; height: number; draw: (pen: Pen, ink: Ink) => void }

/** Returns the colours of the page at an element. */
export function inkOf(element: HTMLElement): Ink {
  return { text: resolve(element, "--text"), dim: resolve(element, "--dim"), line: resolve(element, "--line"), background: resolve(element, "--bg") };
}

/** Draws a picture on a canvas, which gets its size. Returns false if the browser has no canvas of this size. */
export function drawOn(canvas: HTMLCanvasElement, picture: Picture, ink: Ink, ratio = devicePixelRatio): boolean {
  canvas.width = Math.round(picture.width * ratio);
  canvas.height = Math.round(picture.height * ratio);
  const c = canvas.getContext("2d");
  if (!c || picture.width < 1) return false;
  c.scale(ratio, ratio);
  picture.draw(c, ink);
  return true;
}

function framed(picture: Picture): Picture {
  return { ...picture, draw: (pen, ink) => {
    pen.fillStyle = ink.background;
    pen.fillRect(0, 0, picture.width, picture.height);
    picture.draw(pen, ink);
  } };
}

/** Returns a picture as SVG, drawn from its data. */
export function svg(picture: Picture, ink: Ink): string {
  const pen = new SvgPen();
  framed(picture).draw(pen, ink);
  return pen.picture(picture.title, picture.width, picture.height);
}

/** Offers a picture as a file. */
export function savePicture(kind: "png" | "svg", picture: Picture, ink: Ink): void {
  const name = `${picture.title.toLowerCase().replace(/[^a-z0-9]+/g, "-").replace(/^-+|-+$/g, "").slice(0, 80) || "chart"}.${kind}`;
  if (kind === "svg") {
    save(name, new Blob([svg(picture, ink)], { type: "image/svg+xml" }));
    return;
  }
  const canvas = document.createElement("canvas");
  if (drawOn(canvas, framed(picture), ink, 2)) canvas.toBlob((blob) => blob && save(name, blob), "image/png");
}
