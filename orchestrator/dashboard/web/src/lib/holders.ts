import type { Node, Round } from "./api.gen";

/** A time in which a trial held a device. Times are in milliseconds. The sweep of another tenant is "". */
export interface Hold {
  node: string; device: number; sweep: string; trial: number; key: string;
  from: number;
  /** Until when the lease lasts at least; NaN if it has no end. */
  term: number;
  /** When the policy took it, or gave the device to another trial; NaN if neither happened. */
  taken: number;
  held: boolean; reason: string; round: string;
}

const keyOf = (sweep: string, trial: number, lease: string): string => `${sweep} ${trial} ${lease}`;
const at = (time: string | null | undefined): number => (time ? Date.parse(time) : NaN);

/** Returns the holds of devices, the newest first, from rounds in any order and the current state of nodes. */
export function holds(rounds: Round[], nodes: Node[]): Hold[] {
  const all: Hold[] = [], open = new Map<string, Hold>(); // by device
  const order = rounds.toSorted((a, b) => Number(a.round) - Number(b.round));
  for (const r of order) {
    for (const d of r.decisions) {
      const key = keyOf(d.sweep, d.trial, d.lease_id);
      if (d.kind !== "grant") {
        for (const h of open.values()) {
          if (h.key !== key) continue;
          if (d.kind === "renew") h.term = at(d.term_end);
          else h.taken = at(r.time);
        }
        continue;
      }
      for (const p of d.places) for (const device of p.devices) {
        const place = `${p.node} ${device}`, before = open.get(place);
        if (before && Number.isNaN(before.taken)) before.taken = at(r.time);
        const hold = { node: p.node, device, sweep: d.sweep, trial: d.trial, key, from: at(r.time), term: at(d.term_end), taken: NaN, held: false, reason: d.reason, round: r.round };
        open.set(place, hold);
        all.push(hold);
      }
    }
  }
  for (const n of nodes) for (const u of n.uses) {
    const name = n.info?.name ?? "", key = u.fork ? keyOf(u.fork.sweep, u.fork.trial, u.fork.lease_id) : "";
    const hold = open.get(`${name} ${u.device}`);
    // For a trial of another tenant, nodes report only that it exists.
    const term = at(u.term_end);
    if (hold && (hold.key === key || (u.fork?.sweep === "" && hold.sweep === ""))) {
      hold.held = true;
      if (!Number.isNaN(term)) hold.term = term;
    } else if (u.fork) all.push({ node: name, device: u.device, sweep: u.fork.sweep, trial: u.fork.trial, key, from: NaN, term, taken: NaN, held: true, reason: "", round: "" });
  }
  return all.reverse();
}

/** Returns when a hold ended, or now; the end of a lease that is over without a decision is not known, and at most its term. */
export function endOf(h: Hold, now: number): { to: number; known: boolean } {
  if (h.held) return { to: now, known: true };
  if (!Number.isNaN(h.taken)) return { to: h.taken, known: true };
  return { to: Number.isNaN(h.term) ? now : Math.min(now, h.term), known: false };
}
