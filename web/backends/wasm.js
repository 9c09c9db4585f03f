// Answers that are computed in the page (`ipot serve --export`).

import { array, readNpz } from "./npz.js";
import { remarksOn } from "../problems/unlike.js";
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
    this.dt = model.spec.dt;
    this.model = model;
    // A step that is a graph of its own may be taken as often as one likes.
    this.mostSteps = this.graph.parts.includes("step") ? Infinity : model.spec.steps;
  }

  /** Fields at the queries. The engine stops at its next step when `signal` is aborted. */
  async predict({ steps, times, interval, ...given }, { signal = null } = {}) {
    if (interval != null) throw new Error("Bounds need a server: run `ipot serve`.");
    const at = this.#steps(steps, times);
    given.queries ??= given.points;
    const tensors = Object.fromEntries(
      Object.keys(this.graph.columns).map((name) => [name, this.#scaled(name, given[name])]),
    );
    await (this.#ready ??= this.#load());
    const found = await engine("predict", { name: this.name, given: tensors, at }, signal);
    const [count, , channels] = found.shape;
    const { timed, flat } = this.graph;
    const front = timed ? [count] : [];
    const shape = [...front, ...given.queries.shape.slice(0, -1), ...(flat ? [] : [channels])];
    const remarks = remarksOn(this.model, given);
    return { prediction: array(this.#undone(found), shape), remarks, milliseconds: found.milliseconds };
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
    const { parts } = this.graph;
    const wasm = await asset("runtime.wasm");
    await engine("start", { wasm });
    const files = await Promise.all(
      parts.map((part) => asset(`${this.name}.${part}.onnx`, { again: false })),
    );
    const graphs = Object.fromEntries(parts.map((part, k) => [part, files[k]]));
    await engine("model", { name: this.name, graphs, states: this.graph.states });
  }

  /** The numbers of the steps to answer at, from 1. */
  #steps(steps, times) {
    const listed = times?.data ?? times;
    const at = listed
      ? Array.from(listed, (time) => Math.round(time / this.dt))
      : steps == null
        ? this.graph.at
        : Array.from({ length: steps }, (_, k) => k + 1);
    if (listed && !Array.from(listed).every((time, k) => this.#isStep(time, at, k))) {
      const said = `times must increase and be multiples of the model's step, ${this.dt}`;
      throw new Error(`${said}; got ${Array.from(listed).join(", ")}.`);
    }
    if (at.at(-1) > this.mostSteps) {
      throw new Error(`More than ${this.mostSteps} steps need a server: run \`ipot serve\`.`);
    }
    return at;
  }

  #isStep(time, at, k) {
    return at[k] > (at[k - 1] ?? 0) && Math.abs(time / this.dt - at[k]) < 1e-3;
  }

  /** One tensor of a graph: rows of its columns, and what is far from zero brought near in float64. */
  #scaled(name, given) {
    if (!given) throw new Error(`The model needs ${name}.`);
    const columns = this.graph.columns[name];
    const { data } = given;
    if (data.length % columns) {
      throw new Error(`${name}: ${columns} numbers for each, and ${data.length} are given.`);
    }
    const shape = name === "parameters" ? [columns] : [data.length / columns, columns];
    const change = this.graph.scalings[name];
    if (!change) return { data: Float32Array.from(data, Number), shape };
    const { offset, scale } = change;
    const moved = Float32Array.from(data, (value, k) => {
      return (Number(value) - offset[k % columns]) / scale[k % columns];
    });
    return { data: moved, shape };
  }

  #undone({ data, shape }) {
    const change = this.graph.scalings.targets;
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

let started = null;
let last = 0;
const open = new Map();

/** One task of the engine, in a worker where there may be one. */
async function engine(task, given, signal = null) {
  started ??= start();
  const run = await started;
  signal?.throwIfAborted();
  const id = ++last;
  const stop = () => run({ id: ++last, task: "stop", which: id });
  signal?.addEventListener("abort", stop, { once: true });
  const { found, error } = await run({ id, task, ...given });
  signal?.removeEventListener("abort", stop);
  signal?.throwIfAborted();
  if (error) throw new Error(error);
  return found;
}

async function start() {
  try {
    return await inWorker();
  } catch {
    // file:// allows no worker from a file, and the policy of the page none from elsewhere.
    await script("engine.js");
    return globalThis.ipotEngine;
  }
}

/** The engine in a worker, once it has answered; what forbids it may say so at once or later. */
async function inWorker() {
  const worker = new Worker("engine.js");
  const send = (message) => {
    return new Promise((done) => {
      open.set(message.id, done);
      worker.postMessage(message);
    });
  };
  worker.addEventListener("message", ({ data }) => {
    open.get(data.id)(data);
    open.delete(data.id);
  });
  const failed = new Promise((_, refused) => worker.addEventListener("error", refused));
  await Promise.race([send({ id: 0, task: "hello" }), failed]);
  return send;
}
