// Models in the browser: ONNX Runtime Web on one thread. A bundle of its own (`engine.js`), which
// runs as a worker where the browser allows one and in the page where not (file://).

import * as ort from "onnxruntime-web/wasm";

const ROWS = 16384; // queries at once: more take memory that WASM does not have

const sessions = new Map();

const tasks = {
  /** The runtime itself, as bytes: nothing is fetched. */
  async start({ wasm }) {
    ort.env.wasm.wasmBinary = wasm;
    ort.env.wasm.numThreads = 1;
    ort.env.wasm.proxy = false;
  },

  /** A graph that `ipot export` wrote. */
  async model({ name, onnx }) {
    sessions.set(name, await ort.InferenceSession.create(onnx, { executionProviders: ["wasm"] }));
  },

  /** Fields (T, M, K) from tensors of one sample. */
  async predict({ name, given }) {
    const session = sessions.get(name);
    const { queries } = given;
    const [rows, columns] = queries.shape;
    const started = performance.now();
    const parts = [];
    const others = Object.fromEntries(
      session.inputNames.filter((n) => n !== "queries").map((n) => [n, tensor(given[n])]),
    );
    for (let first = 0; first < rows; first += ROWS) {
      const some = Math.min(ROWS, rows - first);
      const data = queries.data.subarray(first * columns, (first + some) * columns);
      const feeds = { ...others, queries: tensor({ data, shape: [some, columns] }) };
      const { fields } = await session.run(feeds);
      parts.push({ data: fields.data, dims: fields.dims });
      // Where there is no worker the page stays awake between parts.
      if (rows > ROWS) await new Promise((done) => setTimeout(done));
    }
    return { ...joined(parts, rows), milliseconds: performance.now() - started };
  },
};

function tensor({ data, shape }) {
  return new ort.Tensor("float32", data, [1, ...shape]);
}

/** Parts (1, T, some, K) as one (T, M, K). */
function joined(parts, rows) {
  const [, steps, , channels] = parts[0].dims;
  if (parts.length === 1) return { data: parts[0].data, shape: [steps, rows, channels] };
  const data = new Float32Array(steps * rows * channels);
  let first = 0;
  for (const part of parts) {
    const size = part.dims[2] * channels;
    for (let step = 0; step < steps; step++) {
      const piece = part.data.subarray(step * size, (step + 1) * size);
      data.set(piece, (step * rows + first) * channels);
    }
    first += part.dims[2];
  }
  return { data, shape: [steps, rows, channels] };
}

async function answer({ id, task, ...given }) {
  try {
    return { id, found: await tasks[task](given) };
  } catch (error) {
    return { id, error: error?.message ?? String(error) };
  }
}

if (typeof document === "undefined") {
  addEventListener("message", async ({ data }) => postMessage(await answer(data)));
} else {
  globalThis.ipotEngine = answer;
}
