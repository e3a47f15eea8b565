/** A parameter as the form has it; high is unused for a choice, whose values are separated by commas. */
export interface FormParameter {
  name: string;
  kind: "float" | "int" | "choice";
  low: string;
  high: string;
  log: boolean;
  values: string;
}

export interface Form {
  name: string;
  command: string;
  metric: string;
  mode: string;
  tuner: string;
  maxSteps: number;
  trials: number;
  parameters: FormParameter[];
}

/** The tuners that need no more than the maximum of steps. */
export const TUNERS = ["auto", "random", "sobol", "grid", "bayes", "asha", "hyperband", "successive_halving", "median", "performance_curve", "freeze_thaw"];

/** Returns a value of a choice: a number or true or false if it reads as one, else a text. */
function choice(text: string): string {
  const word = text.trim();
  if (word !== "" && Number.isFinite(Number(word))) return String(Number(word));
  return word === "true" || word === "false" ? word : JSON.stringify(word);
}

function parameter(p: FormParameter): string {
  const name = /^[A-Za-z_][\w.-]*$/.test(p.name) ? p.name : JSON.stringify(p.name);
  if (p.kind === "choice") return `  ${name}: {choice: {values: [${p.values.split(",").filter((v) => v.trim() !== "").map(choice).join(", ")}]}}`;
  return `  ${name}: {${p.kind}: {low: ${p.low || "null"}, high: ${p.high || "null"}${p.log ? ", log: true" : ""}}}`;
}

/** Returns the sweep's file for the values of a form. The server checks it. */
export function fileOf(form: Form): string {
  return [
    `name: ${JSON.stringify(form.name)}`,
    "space:",
    ...form.parameters.map(parameter),
    `metric: ${JSON.stringify(form.metric)}`,
    `mode: ${form.mode}`,
    `tuner: {${form.tuner}: {max_steps: ${form.maxSteps}}}`,
    `limits: {trials: ${form.trials}}`,
    "program:",
    "  shell: |",
    ...form.command.split("\n").map((line) => `    ${line}`),
    "",
  ].join("\n");
}

/** Returns a value without its empty parts, because a spec from the server has every field. */
export function compact(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(compact);
  if (typeof value !== "object" || value === null) return value;
  const kept = Object.entries(value).map(([k, v]) => [k, compact(v)] as const)
    .filter(([, v]) => v !== null && v !== "" && !(Array.isArray(v) && v.length === 0));
  return Object.fromEntries(kept);
}

/** Returns the line that an error of the server names; 0 if it names none. */
export function lineOf(error: string): number {
  return Number(/^line (\d+)/.exec(error)?.[1] ?? 0);
}
