import { describe, expect, it } from "vitest";
import { colourOf, SvgPen } from "./pen";
import { ticks } from "./ticks";

describe("SvgPen", () => {
  it("draws shapes, and text as text", () => {
    const pen = new SvgPen();
    pen.strokeStyle = "rgb(0 32 77)";
    pen.setLineDash([4, 4]);
    pen.beginPath();
    pen.moveTo(1, 2.005);
    pen.lineTo(3, 4);
    pen.stroke();
    pen.globalAlpha = 0.5;
    pen.fillStyle = "#ff000080";
    pen.fillRect(0, 0, 10, 5);
    pen.fillText("<script>&\u202e\u0000", 1, 1);
    const text = pen.picture("a < b", 10, 5);
    expect(text).toContain('<path d="M1 2.01L3 4" fill="none" stroke="#00204d" stroke-width="1" stroke-dasharray="4 4"/>');
    expect(text).toContain('fill="#ff0000" fill-opacity="0.25"');
    expect(text).toContain("&#60;script&#62;&#38;\\u202e\\u0000</text>");
    expect(text).toContain("<title>a &#60; b</title>");
  });

  it("reads the colours of style sheets", () => {
    expect(colourOf("rgba(1, 2, 3, 0.5)")).toEqual(["#010203", 0.5]);
    expect(colourOf("url(x)")).toEqual(["#808080", 1]);
  });
});

describe("ticks", () => {
  it("are round and few", () => {
    expect(ticks(0, 1, 5)).toEqual([0, 0.2, 0.4, 0.6, 0.8, 1]);
    expect(ticks(1e-5, 1, 4, true)).toEqual([1e-5, 1e-3, 0.1]);
    expect(ticks(2, 3, 5, true).length).toBeGreaterThan(2);
    expect(ticks(NaN, 1, 5)).toEqual([]);
    expect(ticks(-1e300, 1e300, 5).length).toBeLessThan(1000);
  });
});
