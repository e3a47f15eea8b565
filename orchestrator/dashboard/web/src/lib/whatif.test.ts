import { describe, expect, it } from "vitest";

import type { SimulatedRun, SimulatedSweep } from "./api.gen";
import { change, fate, means, title } from "./whatif";

const sweep = (seconds?: number, rho?: number, device_seconds = 0): SimulatedSweep => ({
  sweep: "s-1", submitted: null, device_seconds, unknown_speed: false, ...(seconds === undefined ? {} : { seconds }), ...(rho === undefined ? {} : { rho }),
});
const run = (policy: string, weight: number, sweeps: SimulatedSweep[]): SimulatedRun => ({ policy, weight, sweeps, assumptions: [] });

describe("simulated runs", () => {
  it("have a fate of each sweep", () => {
    expect(fate(sweep(60, 1.5, 90))).toEqual({ seconds: 60, rho: 1.5, devices: 1.5 });
    expect(fate(sweep(undefined, undefined, 90))).toEqual({ seconds: NaN, rho: NaN, devices: NaN });
    expect(fate(undefined).devices).toBeNaN();
    expect(fate(sweep(0)).devices).toBeNaN();
  });
  it("have names", () => {
    expect([run("", 0, []), run("las", 0, []), run("themis", 2, [])].map(title)).toEqual(["what happened", "las", "themis, weight 2"]);
  });
  it("are compared over the sweeps that ended in all of them", () => {
    const found = means([run("", 0, [sweep(10, 1, 10), sweep()]), run("las", 0, [sweep(20, 2, 10), sweep(5, 1, 5)])]);
    expect(found).toEqual({ sweeps: 1, of: [{ seconds: 10, rho: 1, devices: 1 }, { seconds: 20, rho: 2, devices: 0.5 }] });
    expect(means([run("", 0, [sweep()])]).of[0]?.seconds).toBeNaN();
    expect(means([])).toEqual({ sweeps: 0, of: [] });
  });
  it("differ by percent", () => {
    expect([change(15, 10), change(5, 10), change(10, 10), change(10.01, 10), change(NaN, 10), change(1, 0)]).toEqual(["+50 %", "−50 %", "", "", "", ""]);
  });
});
