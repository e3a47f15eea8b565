import { expect, test } from "vitest";
import { front, importance } from "./importance";

const n = 400;
const column = (k: number): number[] => Array.from({ length: n }, (_, i) => (i * k * 0.618034) % 1);

test("a parameter's share grows with its effect, and noise has next to none", () => {
  const strong = column(1), weak = column(7);
  const x = [strong, weak, column(13)];
  const y = strong.map((a, i) => 10 * a + 3 * (weak[i] ?? 0));
  const shares = importance(x, y);
  expect(shares.reduce((a, b) => a + b)).toBeCloseTo(1);
  expect(shares[0]).toBeGreaterThan(0.7);
  expect(shares[1]).toBeGreaterThan(0.02);
  expect(shares[2]).toBeLessThan(0.02);
  expect(importance(x, y)).toEqual(shares);
});

test("what says nothing has no shares", () => {
  expect(importance([[1, 2, 3]], [1, 2, 3])).toEqual([0]);
  expect(importance([column(1)], column(1).map(() => 1))).toEqual([0]);
});

test("the front has what nothing is better than", () => {
  const points: [number, number][] = [[1, 5], [2, 4], [2, 6], [3, 4], [1, 5], [4, 1]];
  expect(front(points, [false, false])).toEqual([true, true, false, false, true, true]);
  expect(front([[1, 1], [2, 2]], [true, true])).toEqual([false, true]);
  for (let k = 0; k < 50; k++) {
    const all: [number, number][] = Array.from({ length: 30 }, (_, i) => [Math.floor(((i + k) * 7919) % 13), Math.floor(((i * k + 3) * 104729) % 11)]);
    const kept = front(all, [false, true]);
    all.forEach((p, i) => {
      const beaten = all.some((q) => q[0] <= p[0] && q[1] >= p[1] && (q[0] < p[0] || q[1] > p[1]));
      expect(kept[i]).toBe(!beaten);
    });
  }
});
