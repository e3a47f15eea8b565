/** The periods that a page of usage or of the audit can show, in the order in which they are offered. */
export const periods = {
  hour: "The last hour", day: "The last 24 hours", week: "The last 7 days", month: "This month", previous: "The month before", days: "The last 30 days", all: "Everything",
} as const;
export type Period = keyof typeof periods;

const HOURS: Partial<Record<Period, number>> = { hour: 1, day: 24, week: 7 * 24, days: 30 * 24 };

/** Returns the period that a text of the address names, or another. */
export function periodOf(text: string, otherwise: Period): Period {
  return Object.hasOwn(periods, text) ? (text as Period) : otherwise;
}

/** Returns when a period starts and ends. Months are those of UTC, and an absent end is now. */
export function bounds(period: Period, now: Date): { since?: Date; until?: Date } {
  const month = (back: number): Date => new Date(Date.UTC(now.getUTCFullYear(), now.getUTCMonth() - back, 1));
  if (period === "month") return { since: month(0) };
  if (period === "previous") return { since: month(1), until: month(0) };
  const hours = HOURS[period];
  return hours === undefined ? {} : { since: new Date(now.getTime() - 3_600_000 * hours) };
}

/** Returns the flags of `outbid` for a period. */
export function flags(period: Period, now: Date): string {
  const { since } = bounds(period, now);
  if (period === "month" || period === "previous") return ` --month ${since?.toISOString().slice(0, 7)}`;
  const hours = HOURS[period];
  return hours === undefined ? "" : ` --since ${hours}h`;
}
