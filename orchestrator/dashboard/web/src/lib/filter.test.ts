import { describe, expect, it } from "vitest";

import type { Sweep } from "./api.gen";
import { best, chosen, columns as columnsOf, compare, sorted } from "./columns";
import { parse } from "./filter";
import { clean, csvCell, duration, shellWord, short } from "./text";
import { readFrames, TrialStore, type Piece } from "./trialstore";

/** Returns a frame as the server sends it. */
function frame(piece: Piece, arrays: (Int32Array | Float64Array | Uint8Array)[]): Uint8Array {
  const data = arrays.map((a) => {
    const padded = new Uint8Array(Math.ceil(a.byteLength / 8) * 8);
    padded.set(new Uint8Array(a.buffer));
    return padded;
  });
  const text = new TextEncoder().encode(JSON.stringify(piece));
  const head = new Uint8Array(Math.ceil(text.length / 8) * 8).fill(32);
  head.set(text);
  const sizes = new Uint8Array(new Uint32Array([head.length, data.reduce((n, d) => n + d.length, 0)]).buffer);
  return new Uint8Array([sizes, head, ...data].flatMap((part) => [...part]));
}

const PARAMETER = "TRIAL_COLUMN_KIND_PARAMETER", TRIAL = "TRIAL_COLUMN_KIND_TRIAL";
const first = frame({ whole: true, version: "a.1", rows: 3, columns: [
  { kind: TRIAL, name: "step", type: "u8" }, { kind: PARAMETER, name: "opt", words: ["adam", "sgd", "adam w"], text_type: "u8" }, { kind: PARAMETER, name: "lr", type: "f64" },
] }, [Int32Array.of(0, 1, 2), Uint8Array.of(1, 5, 9), Uint8Array.of(1, 2, 3), Float64Array.of(0.1, 0.01, NaN)]);

/** Returns the store of frames that come in pieces of a size. */
async function stored(size: number, ...frames: Uint8Array[]): Promise<TrialStore> {
  const all = new Uint8Array(frames.flatMap((f) => [...f]));
  const store = new TrialStore();
  const body = new ReadableStream<Uint8Array>({ start: (c) => {
    for (let i = 0; i < all.length; i += size) c.enqueue(all.slice(i, i + size));
    c.close();
  } });
  await readFrames(new Response(body as ReadableStream<Uint8Array<ArrayBuffer>>), (piece, data, begin) => store.put(piece, data, begin));
  return store;
}

const sweep = { spec: { metric: "", mode: "", objectives: [], space: { lr: {}, opt: {} } } } as unknown as Sweep;
const store = await stored(100, first);
const columns = columnsOf(sweep, store);

describe("the columns of a stream", () => {
  it.each([1, 7, 8, 1000])("come in pieces of %d bytes", async (size) => {
    const read = await stored(size, first, first);
    expect(columnsOf(sweep, read).map((c) => [c.key, ...[0, 1, 2].map((row) => c.of(row))])).toEqual([
      ["number", 0, 1, 2], ["step", 1, 5, 9], ["lr", 0.1, 0.01, NaN], ["opt", "adam", "sgd", "adam w"],
    ]);
  });
  it("replace what changed", async () => {
    const change = frame({ version: "a.2", rows: 2, columns: [{ kind: PARAMETER, name: "lr", type: "f64" }] }, [Int32Array.of(1, 70), Float64Array.of(7, 8)]);
    const read = await stored(50, first, change);
    expect(read.rows).toBe(71);
    expect([0, 1, 2, 69, 70].map((row) => read.cells(PARAMETER, "lr")?.number(row))).toEqual([0.1, 7, NaN, NaN, 8]);
    expect([0, 1, 70].map((row) => read.cells(PARAMETER, "opt")?.string(row))).toEqual(["adam", "", ""]);
  });
  it("sort, with what is missing last, and give the best", () => {
    const rows = chosen(3, () => true), by = (key: string) => columns.find((c) => c.key === key) ?? columns[0] as (typeof columns)[0];
    expect([...sorted(rows, by("lr"), false)]).toEqual([1, 0, 2]);
    expect([...sorted(rows, by("lr"), true)]).toEqual([0, 1, 2]);
    expect([...sorted(rows, by("opt"), true)]).toEqual([1, 2, 0]);
    expect(best(rows, by("step"), true, 2)).toEqual([2, 1]);
    expect(best(rows, by("lr"), false, 3)).toEqual([1, 0]);
  });
});

describe("a filter", () => {
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
    if (filter.ok) expect([0, 1, 2].filter((row) => filter.test(row))).toEqual(want);
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
