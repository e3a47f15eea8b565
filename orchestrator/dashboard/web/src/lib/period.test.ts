import { expect, test } from "vitest";
import { bounds, flags, periodOf } from "./period";

const now = new Date("2026-01-15T12:00:00Z");

test("a period has its bounds and flags", () => {
  expect(bounds("month", now)).toEqual({ since: new Date("2026-01-01T00:00:00Z") });
  expect(bounds("previous", now)).toEqual({ since: new Date("2025-12-01T00:00:00Z"), until: new Date("2026-01-01T00:00:00Z") });
  expect(bounds("day", now)).toEqual({ since: new Date("2026-01-14T12:00:00Z") });
  expect(bounds("all", now)).toEqual({});
  expect(flags("previous", now)).toBe(" --month 2025-12");
  expect(flags("week", now)).toBe(" --since 168h");
  expect(flags("all", now)).toBe("");
});

test("the address may name anything", () => {
  expect(periodOf("week", "month")).toBe("week");
  expect(periodOf("toString", "month")).toBe("month");
});
