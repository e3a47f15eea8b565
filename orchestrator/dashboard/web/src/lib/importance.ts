/**
 * Importance of parameters as in the SDK: permutation importance (Breiman 2001) over extremely randomised trees (Geurts, Ernst
 * and Wehenkel 2006). The seed is fixed, so the same trials have the same shares.
 */

const TREES = 48;
const LEAF = 3; // trials in a leaf that is not split
const MOST = 600; // trials that are used; a random sample of more
const SHUFFLES = 3;

/** The fewest trials for which importance is shown. */
export const LEAST = 4;

interface Node {
  feature: number; // -1 for a leaf
  threshold: number;
  left: number; // of nodes; the right one follows it
  value: number;
}

/** Returns random numbers in [0, 1): mulberry32. */
function random(seed: number): () => number {
  let a = seed;
  return () => {
    a = (a + 0x6d2b79f5) | 0;
    let t = Math.imul(a ^ (a >>> 15), 1 | a);
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
    return ((t ^ (t >>> 14)) >>> 0) / 4294967296;
  };
}

function mean(y: number[], rows: number[]): number {
  return rows.reduce((sum, r) => sum + (y[r] ?? 0), 0) / rows.length;
}

function spread(y: number[], rows: number[]): number {
  const m = mean(y, rows);
  return rows.reduce((sum, r) => sum + ((y[r] ?? 0) - m) ** 2, 0);
}

/** Returns the best of one random split of each column, or undefined if no column varies. */
function split(x: number[][], y: number[], rows: number[], rng: () => number): { feature: number; threshold: number; low: number[]; high: number[] } | undefined {
  let best: ReturnType<typeof split>;
  let least = Infinity;
  x.forEach((column, feature) => {
    const values = rows.map((r) => column[r] ?? 0);
    const low = Math.min(...values), high = Math.max(...values);
    if (low === high) return;
    const threshold = low + rng() * (high - low);
    const below = rows.filter((r) => (column[r] ?? 0) <= threshold), above = rows.filter((r) => (column[r] ?? 0) > threshold);
    if (below.length === 0 || above.length === 0) return;
    const left = spread(y, below) + spread(y, above);
    if (left < least) {
      least = left;
      best = { feature, threshold, low: below, high: above };
    }
  });
  return best;
}

function grow(x: number[][], y: number[], rng: () => number): Node[] {
  const nodes: Node[] = [{ feature: -1, threshold: 0, left: 0, value: 0 }];
  const open: [Node, number[]][] = [[nodes[0] as Node, y.map((_, i) => i)]];
  for (let next = open.pop(); next; next = open.pop()) {
    const [node, rows] = next;
    node.value = mean(y, rows);
    const found = rows.length > LEAF ? split(x, y, rows, rng) : undefined;
    if (!found) continue;
    node.feature = found.feature;
    node.threshold = found.threshold;
    node.left = nodes.length;
    for (const part of [found.low, found.high]) {
      const child = { feature: -1, threshold: 0, left: 0, value: 0 };
      nodes.push(child);
      open.push([child, part]);
    }
  }
  return nodes;
}

/** Returns the squared error of a tree; the column `changed` is read in the order of `order`. */
function error(tree: Node[], x: number[][], y: number[], changed: number, order: number[]): number {
  let sum = 0;
  for (let r = 0; r < y.length; r++) {
    let node = tree[0] as Node;
    while (node.feature >= 0) {
      const row = node.feature === changed ? (order[r] ?? r) : r;
      node = tree[node.left + ((x[node.feature]?.[row] ?? 0) <= node.threshold ? 0 : 1)] as Node;
    }
    sum += (node.value - (y[r] ?? 0)) ** 2;
  }
  return sum;
}

function shuffled(n: number, rng: () => number): number[] {
  const order = Array.from({ length: n }, (_, i) => i);
  for (let i = n - 1; i > 0; i--) {
    const j = Math.floor(rng() * (i + 1));
    [order[i], order[j]] = [order[j] ?? 0, order[i] ?? 0];
  }
  return order;
}

/** Returns the share of each column in the variance of the values that the trees explain; all zero if they explain none. */
export function importance(columns: number[][], values: number[], seed = 1): number[] {
  const rng = random(seed);
  let x = columns, y = values;
  if (y.length > MOST) {
    const rows = shuffled(y.length, rng).slice(0, MOST);
    y = rows.map((r) => values[r] ?? 0);
    x = columns.map((c) => rows.map((r) => c[r] ?? 0));
  }
  const raw = x.map(() => 0);
  if (y.length < LEAST) return raw;
  const own = Array.from({ length: y.length }, (_, i) => i);
  for (let t = 0; t < TREES; t++) {
    const tree = grow(x, y, rng);
    const base = error(tree, x, y, -1, own);
    x.forEach((_, c) => {
      for (let s = 0; s < SHUFFLES; s++) raw[c] = (raw[c] ?? 0) + Math.max(0, error(tree, x, y, c, shuffled(y.length, rng)) - base);
    });
  }
  const total = raw.reduce((a, b) => a + b, 0);
  return total > 0 ? raw.map((v) => v / total) : raw;
}

/** Returns which points no other point is at least as good as in both numbers and better in one. */
export function front(points: [number, number][], max: [boolean, boolean]): boolean[] {
  const better = (a: number, b: number, most: boolean): boolean => (most ? a > b : a < b);
  const order = points.map((_, i) => i).sort((i, j) => {
    const a = points[i] as [number, number], b = points[j] as [number, number];
    return (max[0] ? b[0] - a[0] : a[0] - b[0]) || (max[1] ? b[1] - a[1] : a[1] - b[1]);
  });
  const kept = points.map(() => false);
  let last: [number, number] | undefined;
  for (const i of order) {
    const p = points[i] as [number, number];
    if (!last || better(p[1], last[1], max[1]) || (p[0] === last[0] && p[1] === last[1])) {
      kept[i] = true;
      last = p;
    }
  }
  return kept;
}
