import type { Column } from "./columns";

/** A parsed filter: a test of a trial, or an error. */
export type Filter = { ok: true; test: (row: number) => boolean } | { ok: false; error: string };

type Test = (row: number) => boolean;

const TOKEN = /\s*(?:(<=|>=|!=|==|=|<|>|~|\(|\)|,)|"((?:[^"\\]|\\.)*)"|([^\s<>=!~(),"]+))/y;

interface Token {
  text: string;
  quoted: boolean;
}

function tokens(text: string): Token[] {
  const found: Token[] = [];
  TOKEN.lastIndex = 0;
  while (TOKEN.lastIndex < text.trimEnd().length) {
    const at = TOKEN.lastIndex;
    const m = TOKEN.exec(text);
    if (!m) throw new Error(`cannot read "${text.slice(at).trim()}"`);
    if (m[2] !== undefined) found.push({ text: m[2].replace(/\\(.)/g, "$1"), quoted: true });
    else found.push({ text: m[1] ?? m[3] ?? "", quoted: false });
  }
  return found;
}

/**
 * Reads a filter such as `lr < 0.01 and state = pruned`, `opt = "adam" or not width >= 64`, `name ~ conv`.
 * A comparison is COLUMN OPERATOR VALUE with = != < <= > >= or ~ (contains); and, or, not and brackets join them.
 */
export function parse(text: string, columns: Column[]): Filter {
  if (text.trim() === "") return { ok: true, test: () => true };
  try {
    const parser = new Parser(tokens(text), new Map(columns.map((c) => [c.key, c])));
    return { ok: true, test: parser.whole() };
  } catch (e) {
    return { ok: false, error: e instanceof Error ? e.message : String(e) };
  }
}

class Parser {
  #at = 0;

  constructor(
    private readonly all: Token[],
    private readonly columns: Map<string, Column>,
  ) {}

  whole(): Test {
    const test = this.#or();
    const rest = this.all[this.#at];
    if (rest) throw new Error(`"${rest.text}" is not expected here`);
    return test;
  }

  #take(...words: string[]): boolean {
    const token = this.all[this.#at];
    if (!token || token.quoted || !words.includes(token.text.toLowerCase())) return false;
    this.#at++;
    return true;
  }

  #or(): Test {
    let left = this.#and();
    while (this.#take("or", "||")) {
      const [a, b] = [left, this.#and()];
      left = (t) => a(t) || b(t);
    }
    return left;
  }

  #and(): Test {
    let left = this.#not();
    while (this.#take("and", "&&")) {
      const [a, b] = [left, this.#not()];
      left = (t) => a(t) && b(t);
    }
    return left;
  }

  #not(): Test {
    if (this.#take("not")) {
      const test = this.#not();
      return (t) => !test(t);
    }
    if (this.#take("(")) {
      const test = this.#or();
      if (!this.#take(")")) throw new Error('a ")" is missing');
      return test;
    }
    return this.#comparison();
  }

  #comparison(): Test {
    const name = this.all[this.#at++];
    if (!name) throw new Error("a comparison is missing, such as step > 10");
    const column = this.columns.get(name.text);
    if (!column) throw new Error(`there is no column "${name.text}"`);
    const operator = this.all[this.#at++]?.text ?? "";
    const want = this.all[this.#at++];
    if (!["=", "==", "!=", "<", "<=", ">", ">=", "~"].includes(operator) || !want) {
      throw new Error(`after "${name.text}" an operator and a value are missing, such as ${name.text} = 1`);
    }
    return compareWith(column, operator, want.text);
  }
}

function compareWith(column: Column, operator: string, want: string): Test {
  if (operator === "~") return (t) => column.show(t).toLowerCase().includes(want.toLowerCase());
  const number = Number(want);
  return (t) => {
    const x = column.of(t);
    if (typeof x === "number" && !Number.isNaN(number)) return holds(x - number, operator, Number.isNaN(x));
    const text = typeof x === "number" ? column.show(t) : x;
    return holds(text === want ? 0 : text < want ? -1 : 1, operator, x === "");
  };
}

function holds(order: number, operator: string, absent: boolean): boolean {
  switch (operator) {
    case "=":
    case "==":
      return order === 0;
    case "!=":
      return order !== 0;
    case "<":
      return !absent && order < 0;
    case "<=":
      return !absent && order <= 0;
    case ">":
      return !absent && order > 0;
    default:
      return !absent && order >= 0;
  }
}
