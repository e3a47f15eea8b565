import { type Column, ofCells } from "./columns";
import { clean } from "./text";
import type { TrialStore } from "./trialstore";

const FAILED = "TRIAL_STATE_FAILED";
const AROUND = /^(?:failed for good: )?(.*?)(?:: it starts again .*|; it failed twice .*|: it fails unless .*)?$/s;
const MOST = 160; // characters of a kind

/** Returns the failure in the reason of a failed trial as one line, without the consequence for the trial. The shell does the same. */
export function failureKind(reason: string): string {
  const kind = clean((AROUND.exec(reason)?.[1] ?? reason).replace(/\s+/g, " ").trim());
  return kind.length > MOST ? `${kind.slice(0, MOST - 1)}…` : kind;
}

/** Returns columns that filters know, but the table does not show: the reason of a trial's state, and the kind of its failure. */
export function hiddenColumns(store: TrialStore): Column[] {
  const cells = store.own("reason"), state = store.own("state");
  if (!cells || !state) return [];
  const reason = ofCells({ key: "reason", title: "reason", kind: "own" }, cells, clean);
  const kinds = ofCells({ key: "failure", title: "failure", kind: "own" }, cells, failureKind);
  const kind = (row: number): string => (state.string(row) === FAILED ? kinds.text(row) : "");
  return [reason, { ...kinds, numeric: false, text: kind, of: kind, show: kind }];
}

/** A kind of failure: how many trials failed so, and the first of them. */
export interface Failure { kind: string; trials: number; first: number }

/** Returns the kinds of the failures of rows, the commonest first. */
export function failures(store: TrialStore, rows: Uint32Array): Failure[] {
  const cells = store.own("reason"), state = store.own("state");
  const word = state?.words.indexOf(FAILED) ?? -1;
  if (word < 0 || !state?.text) return [];
  const found = new Map<number, { trials: number; first: number }>(); // by word of the reason
  for (const row of rows) {
    if (state.text[row] !== word) continue;
    const reason = cells?.text?.[row] ?? 0, seen = found.get(reason);
    if (seen) seen.trials++;
    else found.set(reason, { trials: 1, first: row });
  }
  const kinds = new Map<string, Failure>();
  for (const [reason, { trials, first }] of found) {
    const kind = failureKind(cells?.words[reason] ?? ""), seen = kinds.get(kind);
    if (seen) {
      seen.trials += trials;
      seen.first = Math.min(seen.first, first);
    } else kinds.set(kind, { kind, trials, first });
  }
  return [...kinds.values()].sort((a, b) => b.trials - a.trials || a.first - b.first);
}
