import type { Sweep } from "./api.gen";

/** The head of a frame of /columns; its data follow. */
export interface Piece {
  version?: string;
  whole?: boolean;
  sweep?: Sweep;
  rows: number;
  columns: { kind: Kind; name: string; type?: keyof typeof READ; words?: string[]; text_type?: keyof typeof READ }[];
}

export type Kind = "TRIAL_COLUMN_KIND_TRIAL" | "TRIAL_COLUMN_KIND_METRIC" | "TRIAL_COLUMN_KIND_PARAMETER" | "TRIAL_COLUMN_KIND_ATTRIBUTE";

const READ = { f64: Float64Array, f32: Float32Array, i32: Int32Array, i16: Int16Array, i8: Int8Array, u8: Uint8Array };

/** A column of trials by number: numbers, NaN for none, and texts. */
export class Cells {
  numbers: Float64Array | undefined = undefined;
  /** The number of a trial's word, 0 for none. */
  text: Uint32Array | undefined = undefined;
  words: string[] = [""];
  readonly #word = new Map<string, number>([["", 0]]);

  constructor(readonly kind: Kind, readonly name: string) {}

  number(row: number): number {
    return this.numbers?.[row] ?? NaN;
  }

  string(row: number): string {
    return this.words[this.text?.[row] ?? 0] ?? "";
  }

  /** Makes room for rows. */
  reserve(rows: number): void {
    if (this.numbers && this.numbers.length < rows) {
      const longer = new Float64Array(rows).fill(NaN);
      longer.set(this.numbers);
      this.numbers = longer;
    }
    if (this.text && this.text.length < rows) {
      const longer = new Uint32Array(rows);
      longer.set(this.text);
      this.text = longer;
    }
  }

  putNumbers(rows: Int32Array, values: ArrayLike<number>, room: number): void {
    this.numbers ??= new Float64Array(room).fill(NaN);
    for (let i = 0; i < rows.length; i++) this.numbers[rows[i] ?? 0] = values[i] ?? NaN;
  }

  putText(rows: Int32Array, words: string[], text: ArrayLike<number>, room: number): void {
    this.text ??= new Uint32Array(room);
    const own = [0, ...words.map((w) => this.#intern(w))];
    for (let i = 0; i < rows.length; i++) this.text[rows[i] ?? 0] = own[text[i] ?? 0] ?? 0;
  }

  clear(rows: Int32Array): void {
    for (const row of rows) {
      if (this.numbers) this.numbers[row] = NaN;
      if (this.text) this.text[row] = 0;
    }
  }

  #intern(word: string): number {
    let n = this.#word.get(word);
    if (n === undefined) {
      n = this.words.push(word) - 1;
      this.#word.set(word, n);
    }
    return n;
  }
}

/** The trials of a sweep as columns, which are changed in place by the frames of a stream. */
export class TrialStore {
  readonly columns = new Map<string, Cells>();
  rows = 0;
  #room = 0;

  cells(kind: Kind, name: string): Cells | undefined {
    return this.columns.get(`${kind} ${name}`);
  }

  /** Returns a column of the trial's own state, such as "step". */
  own(name: string): Cells | undefined {
    return this.cells("TRIAL_COLUMN_KIND_TRIAL", name);
  }

  /** Returns the columns of a kind, in the order in which they came. */
  of(kind: Kind): Cells[] {
    return [...this.columns.values()].filter((c) => c.kind === kind);
  }

  /** Takes a frame. */
  put(piece: Piece, data: ArrayBuffer, begin: number): void {
    if (piece.whole) {
      this.columns.clear();
      this.rows = this.#room = 0;
    }
    let at = begin;
    const take = <T>(kind: { new (buffer: ArrayBuffer, offset: number, length: number): T; BYTES_PER_ELEMENT: number }): T => {
      const taken = new kind(data, at, piece.rows);
      at += Math.ceil((piece.rows * kind.BYTES_PER_ELEMENT) / 8) * 8;
      return taken;
    };
    const rows = take(Int32Array);
    this.#reserve(rows);
    if (!piece.whole) for (const c of this.columns.values()) c.clear(rows);
    for (const c of piece.columns) {
      const key = `${c.kind} ${c.name}`;
      let cells = this.columns.get(key);
      if (!cells) this.columns.set(key, (cells = new Cells(c.kind, c.name)));
      if (c.type) cells.putNumbers(rows, take<ArrayLike<number>>(READ[c.type]), this.#room);
      if (c.words && c.text_type) cells.putText(rows, c.words, take<ArrayLike<number>>(READ[c.text_type]), this.#room);
    }
  }

  #reserve(rows: Int32Array): void {
    this.rows = Math.max(this.rows, (rows.at(-1) ?? -1) + 1); // they are sorted
    if (this.rows <= this.#room) return;
    this.#room = Math.max(this.rows, Math.ceil(this.#room * 1.5), 64);
    for (const c of this.columns.values()) c.reserve(this.#room);
  }
}

/** Calls take with each frame of an answer: its head, and the buffer with its data from an offset on. */
export async function readFrames(answer: Response, take: (head: Piece, data: ArrayBuffer, begin: number) => void): Promise<void> {
  const reader = answer.body?.getReader();
  let frame = new Uint8Array(8), have = 0, head = 0;
  for (;;) {
    const piece = await reader?.read();
    if (!piece || piece.done) return;
    for (let rest = piece.value; rest.length > 0; ) {
      const n = Math.min(rest.length, frame.length - have);
      frame.set(rest.subarray(0, n), have);
      have += n;
      rest = rest.subarray(n);
      if (have < frame.length) continue;
      if (have === 8) { // the sizes of head and data
        const sizes = new DataView(frame.buffer);
        head = sizes.getUint32(0, true);
        const whole = new Uint8Array(8 + head + sizes.getUint32(4, true));
        whole.set(frame);
        frame = whole;
        continue;
      }
      const text = new TextDecoder().decode(frame.subarray(8, 8 + head));
      take(JSON.parse(text) as Piece, frame.buffer, 8 + head);
      frame = new Uint8Array(8);
      have = 0;
    }
  }
}
