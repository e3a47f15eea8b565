import { describe, expect, it } from "vitest";
import { distribution, parseResults } from "./results";

describe("parseResults", () => {
  const run = '{"policy":"fifo","jobs":3,"jct_mean_s":10.5,"rho_max":"Infinity","x y":1}';

  it("reads runs, apps and repeated decisions, and skips other lines", () => {
    const got = parseResults("f", `${run}\n{"setting":"load","value":"1.5","policy":"drf","jobs":3}\n{"policy":"drf","app":"a\u202e","rho":2}\nnonsense\n[1]\n\n`);
    expect(got.runs).toEqual([
      { policy: "fifo", setting: "", value: "", figures: { jobs: 3, jct_mean_s: 10.5, rho_max: Infinity } },
      { policy: "drf", setting: "load", value: "1.5", figures: { jobs: 3 } },
    ]);
    expect(got.fates[0]).toMatchObject({ app: "a\\u202e", rho: 2 });
    expect(got.skipped).toBe(2);
    const again = parseResults("f", JSON.stringify({ rounds: 4, decisions: 9, differing: 1, policies: { drf: 4 }, differences: [{ round: 2, then: "a", now: 7 }, null] }, undefined, 2));
    expect(again.repeated).toEqual([{ rounds: 4, decisions: 9, differing: 1, policies: [["drf", 4]], differences: [{ policy: "", round: 2, time: "", then: "a", now: "" }] }]);
  });

  it("says what a file is not", () => {
    expect(() => parseResults("a.txt", "")).toThrow("a.txt: is empty");
    expect(() => parseResults("a\u202e", "PNG")).toThrow("a\\u202e: has no line of 'outbid sim -o json'");
    expect(() => parseResults("l", '{"batch":{"seq":1}}')).toThrow("l: is a ledger");
    expect(() => parseResults("l", "[".repeat(100_000))).toThrow("has no line");
  });

  it("keeps what a page can draw", () => {
    expect(parseResults("f", `${run}\n`.repeat(5000)).runs.length).toBe(1000);
    expect(parseResults("f", `${run.replace("fifo", "x".repeat(5000))}`).runs[0]?.policy.length).toBe(200);
  });
});

describe("distribution", () => {
  it("is a share of the apps of each policy", () => {
    expect(distribution([["a", 3], ["a", 1], ["b", 2], ["a", NaN], ["a", 3]], 10)).toEqual([["a", { x: [1, 3], y: [1 / 3, 1] }], ["b", { x: [2], y: [1] }]]);
    expect(distribution(Array.from({ length: 5000 }, (_, i) => ["a", i] as [string, number]), 100)[0]?.[1].x.length).toBeLessThan(102);
  });
});
