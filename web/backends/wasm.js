// Answers that are computed in the page (`ipot serve --export`).

import { array, readNpz } from "./npz.js";
import { asset, script } from "./assets.js";

/** All models of the export. */
export async function models() {
  return (await listed()).map(({ name, problem, title, shipped }) => {
    return { name, problem, title, shipped };
  });
}

/** The facts of a model. */
export async function facts(name) {
  const found = (await listed()).find((model) => model.name === name);
  if (!found) throw new Error(`This page has no model ${name}.`);
  return found;
}

/** The backend of a model: see README.md. */
export class WasmBackend {
  kind = "wasm";
  solves = false;
  #ready = null;

  constructor(model) {
    this.name = model.name;
    this.graph = model.graph;
    this.mostSteps = model.spec.steps;
  }

  async predict({ steps = this.mostSteps, times, interval, ...given }) {
    if (times != null || interval != null) {
      throw new Error("Other times and bounds need a server: run `ipot serve`.");
    }
    if (steps > this.mostSteps) {
      throw new Error(`More than ${this.mostSteps} steps need a server: run \`ipot serve\`.`);
    }
    await (this.#ready ??= this.#load());
    given.queries ??= given.points;
    const tensors = Object.fromEntries(
      this.graph.inputs.map(({ name }) => [name, this.#scaled(name, given[name])]),
    );
    const found = await engine("predict", { name: this.name, given: tensors });
    const prediction = array(this.#undone(found), found.shape);
    const [, rows, channels] = found.shape;
    if (steps < found.shape[0]) {
      prediction.data = prediction.data.subarray(0, steps * rows * channels);
      prediction.shape = [steps, rows, channels];
    }
    return { prediction, milliseconds: found.milliseconds };
  }

  async solve() {
    throw new Error("Solving needs a server: run `ipot serve`.");
  }

  async sample(index) {
    return readNpz(await asset(`${this.name}.sample${index}.npz`));
  }

  /** What a problem has beside samples; null where it has nothing. */
  async extras() {
    const { extras } = await facts(this.name);
    return extras ? readNpz(await asset(`${this.name}.extras.npz`)) : null;
  }

  async #load() {
    const [wasm, onnx] = await Promise.all([runtime(), asset(`${this.name}.onnx`)]);
    await engine("start", { wasm });
    await engine("model", { name: this.name, onnx });
  }

  /** As the graph counts: what is far from zero is brought near in float64. */
  #scaled(name, { data, shape }) {
    const change = this.graph.scalings?.[name] ?? this.#origin(name);
    if (!change) return { data: Float32Array.from(data), shape };
    const { offset, scale } = change;
    const columns = shape.at(-1);
    const moved = Float32Array.from(data, (value, k) => {
      return (value - offset[k % columns]) / scale[k % columns];
    });
    return { data: moved, shape };
  }

  #origin(name) {
    const { origin } = this.graph;
    if (!origin || !["points", "queries"].includes(name)) return null;
    return { offset: origin, scale: origin.map(() => 1) };
  }

  #undone({ data, shape }) {
    const change = this.graph.scalings?.targets;
    if (!change) return data;
    const channels = shape.at(-1);
    return Float64Array.from(data, (value, k) => {
      return value * change.scale[k % channels] + change.offset[k % channels];
    });
  }
}

let list = null;

async function listed() {
  list ??= asset("models.json").then((bytes) => JSON.parse(new TextDecoder().decode(bytes)));
  return list;
}

function runtime() {
  return asset("runtime.wasm");
}

let started = null;
let last = 0;
const open = new Map();

/** One task of the engine, in a worker where there may be one. */
async function engine(task, given) {
  started ??= start();
  const run = await started;
  const { found, error } = await run({ id: ++last, task, ...given });
  if (error) throw new Error(error);
  return found;
}

async function start() {
  let worker = null;
  try {
    worker = new Worker("engine.js");
  } catch {
    // file:// allows no worker from a file, and the policy of the page none from elsewhere.
    await script("engine.js");
    return globalThis.ipotEngine;
  }
  worker.addEventListener("message", ({ data }) => {
    open.get(data.id)(data);
    open.delete(data.id);
  });
  return (message) =>
    new Promise((done) => {
      open.set(message.id, done);
      worker.postMessage(message);
    });
}
