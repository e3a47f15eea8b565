import { describe, expect, it } from "vitest";

import type { Trial } from "./api.gen";
import { compare, type Column } from "./columns";
import { parse } from "./filter";
import { clean, csvCell, duration, shellWord, short } from "./text";

const column = (key: string, numeric: boolean, of: (t: Trial) => number | string): Column => ({ key, title: key, of, show: (t) => String(of(t)), numeric, kind: "own" });
const columns = [column("step", true, (t) => Number(t.step)), column("lr", true, (t) => (t.config?.lr as number | undefined) ?? NaN), column("opt", false, (t) => (t.config?.opt as string | undefined) ?? "")];
const trial = (step: number, lr?: number, opt?: string): Trial => ({ step: String(step), config: { lr, opt } }) as unknown as Trial;

describe("a filter", () => {
  const trials = [trial(1, 0.1, "adam"), trial(5, 0.01, "sgd"), trial(9, undefined, "adam w")];
  it.each([
    ["", [0, 1, 2]],
    ["step > 1", [1, 2]],
    ["step >= 1 and lr < 0.05", [1]],
    ['opt = "adam w"', [2]],
    ["opt ~ ADAM", [0, 2]],
    ["not opt = sgd and (step = 1 or step = 9)", [0, 2]],
    ["lr != 0.1", [1, 2]],
    ["lr <= 1", [0, 1]],
    ["lr<1e-1", [1]],
  ])("%s", (text, want) => {
    const filter = parse(text, columns);
    expect(filter.ok).toBe(true);
    if (filter.ok) expect(trials.flatMap((t, i) => (filter.test(t) ? [i] : []))).toEqual(want);
  });
  it.each([
    ["foo = 1", 'there is no column "foo"'],
    ["step", 'after "step" an operator and a value are missing'],
    ["step > 1 )", '")" is not expected here'],
    ["(step > 1", 'a ")" is missing'],
    ["step > 1 and", "a comparison is missing"],
    ['opt = "adam', "cannot read"],
  ])("%s is refused", (text, want) => {
    const filter = parse(text, columns);
    expect(filter.ok).toBe(false);
    if (!filter.ok) expect(filter.error).toContain(want);
  });
});

describe("text", () => {
  it("shows what turns text around", () => expect(clean("a\u202Eb\u0007")).toBe("a\\u202eb\\u0007"));
  it("guards cells that spreadsheets would run", () => {
    expect(csvCell("=1+1")).toBe("'=1+1");
    expect(csvCell("-1.5")).toBe("-1.5");
    expect(csvCell('a,"b"')).toBe('"a,""b"""');
  });
  it("quotes for a shell", () => expect(shellWord("it's")).toBe(`'it'\\''s'`));
  it.each([[0.00012, "1.20e-4"], [12345.678, "12350"], [NaN, "–"], [Infinity, "∞"], [3, "3"], [0.1 + 0.2, "0.3"]])("writes %d", (x, want) => expect(short(x)).toBe(want));
  it.each([[5, "5s"], [65, "1m 5s"], [3700, "1h 1m"], [90000, "1d 1h"], [NaN, "–"]])("writes %d seconds", (x, want) => expect(duration(x)).toBe(want));
  it("sorts what is missing last in either direction", () => {
    expect([NaN, 2, 1].sort((a, b) => compare(a, b, false))).toEqual([1, 2, NaN]);
    expect([NaN, 1, 2].sort((a, b) => compare(a, b, true))).toEqual([2, 1, NaN]);
  });
});
