import { describe, expect, it } from "vitest";

import { compact, fileOf, lineOf } from "./specform";

describe("the form of a sweep", () => {
  it("writes a file", () => {
    const file = fileOf({
      name: "a: b", command: "echo 1\necho {lr}", metric: "loss", mode: "min", tuner: "asha", maxSteps: 9, trials: 20,
      parameters: [
        { name: "lr", kind: "float", low: "1e-5", high: "1", log: true, values: "" },
        { name: "a b", kind: "choice", low: "", high: "", log: false, values: "adam, 3,true, ]" },
      ],
    });
    expect(file).toBe(`name: "a: b"
space:
  lr: {float: {low: 1e-5, high: 1, log: true}}
  "a b": {choice: {values: ["adam", 3, true, "]"]}}
metric: "loss"
mode: min
tuner: {asha: {max_steps: 9}}
limits: {trials: 20}
program:
  shell: |
    echo 1
    echo {lr}
`);
  });
  it("finds the line of an error", () => expect([lineOf("line 12, column 3: no"), lineOf("line 7: x"), lineOf("no line 3")]).toEqual([12, 7, 0]));
  it("leaves out what is empty", () => expect(compact({ a: "", b: [], c: null, d: { e: 0, f: [{ g: "", h: 1 }] }, i: false })).toEqual({ d: { e: 0, f: [{ h: 1 }] }, i: false }));
});
