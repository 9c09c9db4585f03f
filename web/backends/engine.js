// Models in the browser: ONNX Runtime Web on one thread. A bundle of its own (`engine.js`), which
// runs as a worker where the browser allows one and in the page where not (file://).

import * as ort from "onnxruntime-web/wasm";

const ROWS = 16384; // queries at once: more take memory that WASM does not have

const models = new Map();
const unwanted = new Set(); // tasks at work that nobody waits for any longer, by their numbers

const tasks = {
  /** Whether this runs at all. */
  async hello() {},

  /** The runtime itself, as bytes: nothing is fetched. */
  async start({ wasm }) {
    ort.env.wasm.wasmBinary = wasm;
    ort.env.wasm.numThreads = 1;
    ort.env.wasm.proxy = false;
  },

  /** The graphs of a model by what they do (ipot/saved/parts.py), and the names of its state. */
  async model({ name, graphs, states }) {
    const made = {};
    for (const [part, onnx] of Object.entries(graphs)) {
      made[part] = await ort.InferenceSession.create(onnx, { executionProviders: ["wasm"] });
    }
    models.set(name, { ...made, states });
  },

  /** Fields (T, M, K) from tensors of one sample, at some steps counted from 1. */
  async predict({ id, name, given, at }) {
    const model = models.get(name);
    const started = performance.now();
    const { queries, ...others } = given;
    const inputs = Object.fromEntries(Object.entries(others).map(([n, t]) => [n, tensor(t)]));
    try {
      const found = await (model.whole ? whole : inParts)(id, model, inputs, queries, at);
      return { ...found, milliseconds: performance.now() - started };
    } finally {
      unwanted.delete(id);
    }
  },

  /** Stop a task at its next step. One that has ended knows nothing of it. */
  async stop({ which }) {
    unwanted.add(which);
  },
};

/** One graph: it answers at all of its steps, for some queries at a time. */
async function whole(id, model, inputs, queries, at) {
  const parts = [];
  for (const some of pieces(queries)) {
    const { fields } = await run(model.whole, { ...inputs, queries: some });
    parts.push(fields);
    await rest(id);
  }
  const [, , , channels] = parts[0].dims;
  const steps = at.map((step) => {
    return parts.map(({ data, dims: [, , rows] }) => {
      return data.subarray((step - 1) * rows * channels, step * rows * channels);
    });
  });
  return joined(steps, queries.shape[0], channels);
}

/** Encoded once, then step by step; queries are answered where a step is asked for. */
async function inParts(id, model, inputs, queries, at) {
  const names = model.states;
  let state = await run(model.encode, inputs);
  const steps = [];
  let channels = 0;
  for (let step = 1; steps.length < at.length; step++) {
    if (model.step) {
      const next = await run(model.step, state);
      state = Object.fromEntries(names.map((name) => [name, next[`next ${name}`]]));
    }
    if (step !== at[steps.length]) {
      await rest(id);
      continue;
    }
    const parts = [];
    for (const some of pieces(queries)) {
      const { fields } = await run(model.decode, { ...state, queries: some });
      channels = fields.dims.at(-1);
      parts.push(fields.data);
      await rest(id);
    }
    steps.push(parts);
  }
  return joined(steps, queries.shape[0], channels);
}

/** What a graph gives, from as much of what is there as it takes. */
function run(session, there) {
  return session.run(Object.fromEntries(session.inputNames.map((name) => [name, there[name]])));
}

function* pieces({ data, shape: [rows, columns] }) {
  for (let first = 0; first < rows; first += ROWS) {
    const some = Math.min(ROWS, rows - first);
    const piece = data.subarray(first * columns, (first + some) * columns);
    yield tensor({ data: piece, shape: [some, columns] });
  }
}

function tensor({ data, shape }) {
  return new ort.Tensor("float32", data, [1, ...shape]);
}

const inPage = typeof document !== "undefined";
const { port1: alarm, port2: bed } = new MessageChannel();
const resting = []; // tasks that go on when their message arrives, in its order
bed.onmessage = () => resting.shift()();

/** Between two parts of a task: hears whether it is to stop. Where there is no worker the page is
 *  awake meanwhile. */
async function rest(id) {
  await new Promise((done) => {
    if (inPage) setTimeout(done);
    else {
      // A timer would wait for milliseconds, which is longer than many a step.
      resting.push(done);
      alarm.postMessage(null);
    }
  });
  if (unwanted.has(id)) throw new Error("stopped");
}

/** Pieces of every step as one array (T, M, K). */
function joined(steps, rows, channels) {
  const data = new Float32Array(steps.length * rows * channels);
  let at = 0;
  for (const piece of steps.flat()) {
    data.set(piece, at);
    at += piece.length;
  }
  return { data, shape: [steps.length, rows, channels] };
}

async function answer({ id, task, ...given }) {
  try {
    return { id, found: await tasks[task]({ id, ...given }) };
  } catch (error) {
    return { id, error: error?.message ?? String(error) };
  }
}

if (!inPage) {
  addEventListener("message", async ({ data }) => postMessage(await answer(data)));
} else {
  globalThis.ipotEngine = answer;
}
