import { describe, expect, it } from "vitest";
import type { Decision, Node, Round } from "./api.gen";
import { endOf, holds } from "./holders";

const decision = (kind: string, sweep: string, devices: number[], term = ""): Decision =>
  ({ kind, sweep, trial: 1, lease_id: sweep === "a-1" ? "7" : "9", places: devices.length > 0 ? [{ node: "n", devices, ended: false }] : [], reason: "won", term_end: term || null });
const round = (n: number, decisions: Decision[]): Round => ({ round: String(n), time: `2026-01-01T00:0${n}:00Z`, seq: "1", policy: "p", reason: "", decisions });
const minute = (n: number): number => Date.parse(`2026-01-01T00:0${n}:00Z`);

describe("holds", () => {
  const nodes = [{ info: { name: "n" }, uses: [{ device: 0, fork: { sweep: "b-1", trial: 1, lease_id: "9" } }, { device: 5, fork: { sweep: "old-1", trial: 3, lease_id: "2" }, term_end: "2026-01-01T00:08:00Z" }] }] as unknown as Node[];
  const rounds = [ // the newest first
    round(4, [decision("renew", "b-1", [], "2026-01-01T00:09:00Z")]),
    round(3, [decision("grant", "b-1", [0], "2026-01-01T00:05:00Z")]),
    round(2, [decision("revoke", "a-1", [])]),
    round(1, [decision("grant", "a-1", [0, 1], "2026-01-01T00:02:00Z")]),
  ];

  it("follows grants, renewals and revocations", () => {
    const all = holds(rounds, nodes);
    expect(all.map((h) => [h.sweep, h.device, h.from, h.term, h.taken, h.held])).toEqual([
      ["old-1", 5, NaN, minute(8), NaN, true], // from before these rounds
      ["b-1", 0, minute(3), minute(9), NaN, true],
      ["a-1", 1, minute(1), minute(2), minute(2), false],
      ["a-1", 0, minute(1), minute(2), minute(2), false],
    ]);
  });

  it("follows trials of other tenants, which have no name", () => {
    const hidden = [{ info: { name: "n" }, uses: [{ device: 0, fork: { sweep: "", trial: 0, lease_id: "0" } }] }] as unknown as Node[];
    const all = holds([round(1, [decision("grant", "", [0, 1], "2026-01-01T00:02:00Z")])], hidden);
    expect(all.map((h) => [h.sweep, h.device, h.held, h.term])).toEqual([["", 1, false, minute(2)], ["", 0, true, minute(2)]]);
  });

  it("does not know when a trial ended by itself", () => {
    const [ended] = holds([round(1, [decision("grant", "a-1", [0], "2026-01-01T00:02:00Z")])], []);
    expect(ended && endOf(ended, minute(4))).toEqual({ to: minute(2), known: false });
    const [other] = holds(rounds, nodes).filter((h) => h.sweep === "b-1");
    expect(other && endOf(other, minute(8))).toEqual({ to: minute(8), known: true });
  });
});
