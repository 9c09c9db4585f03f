// Answers of the server that the page came from (`ipot serve`).

import { readNpz, writeNpz } from "./npz.js";

/** All models of the server. */
export async function models() {
  return (await (await asked("v1/models")).json()).models;
}

/** The facts of a model. */
export async function facts(name) {
  return (await asked(path(name))).json();
}

/** The backend of a model: see README.md. */
export class ServerBackend {
  kind = "server";

  constructor(model) {
    this.name = model.name;
    this.solves = model.solver;
    this.mostSteps = Infinity;
  }

  /** Fields at the queries. The server stops at its next step when `signal` is aborted. */
  async predict({ steps, times, interval, ...arrays }, { signal = null } = {}) {
    const scalars = Object.entries({ steps, times, interval }).filter(([, value]) => value != null);
    const given = Object.fromEntries(scalars.map(([name, value]) => [name, scalar(value)]));
    return this.#post("predict", { ...arrays, ...given }, signal);
  }

  /** The truth by the problem's own solver. `progress(part)` is called with what is done, from 0 to
   *  1, where solving takes long; the server ends its solver when `signal` is aborted. */
  async solve({ steps, ...arrays }, { progress = null, signal = null } = {}) {
    const given = steps == null ? arrays : { ...arrays, steps: scalar(steps) };
    if (!progress) return this.#post("solve", given, signal);
    const answer = await this.#send("solve", given, "application/x-ndjson", signal);
    let last = null;
    for await (const line of lines(answer.body)) {
      last = JSON.parse(line);
      if (last.error) throw new Error(last.error);
      if ("part" in last) progress(last.part);
    }
    return { ...last, targets: nested(last.targets) };
  }

  /** The answer to a file, as a file: its `bytes` and `name`. `format` is what its name ends in where
   *  that is not of the same kind. */
  async answerFile(file, { format = null, interval = null } = {}) {
    const name = file.name.normalize("NFKD").replace(/[^\w. -]+/g, "_").replace(/^\W+/, "").slice(-100);
    const options = Object.entries({ name, format, interval }).filter(([, value]) => value !== null);
    const answer = await asked(`${path(this.name)}/files?${new URLSearchParams(options)}`, {
      method: "POST",
      headers: { "Content-Type": "application/octet-stream" },
      body: file,
    });
    const told = /filename="([^"]+)"/.exec(answer.headers.get("Content-Disposition") ?? "");
    return { bytes: await bytes(answer), name: told?.[1] ?? `answer_to_${name}` };
  }

  async sample(index) {
    return readNpz(await bytes(await asked(`${path(this.name)}/samples/${index}`)));
  }

  /** What a problem has beside samples; null where it has nothing. */
  async extras() {
    const found = await asked(`${path(this.name)}/extras`, { missing: true });
    return found && readNpz(await bytes(found));
  }

  async #post(what, arrays, signal = null) {
    const answer = await this.#send(what, arrays, "application/x-npz", signal);
    const { milliseconds, remarks, ...found } = await readNpz(await bytes(answer));
    return { ...found, remarks: remarks?.data ?? [], milliseconds: Number(milliseconds.data[0]) };
  }

  async #send(what, arrays, accepted, signal) {
    return asked(`${path(this.name)}/${what}`, {
      method: "POST",
      headers: { "Content-Type": "application/x-npz", Accept: accepted },
      body: writeNpz(arrays),
      signal,
    });
  }
}

/** Lists in lists as one array. */
function nested(lists) {
  const shape = [];
  for (let level = lists; Array.isArray(level); level = level[0]) shape.push(level.length);
  return { data: Float32Array.from(lists.flat(Infinity)), shape };
}

/** The lines of a body as they come. */
async function* lines(body) {
  let rest = "";
  const text = body.pipeThrough(new TextDecoderStream()).getReader();
  for (let part = await text.read(); !part.done; part = await text.read()) {
    const found = (rest + part.value).split("\n");
    rest = found.pop();
    yield* found.filter(Boolean);
  }
  if (rest) yield rest;
}

function path(name) {
  return `v1/models/${encodeURIComponent(name)}`;
}

function scalar(value) {
  const list = Array.isArray(value) ? value : [value];
  const Numbers = list.every(Number.isInteger) ? Int32Array : Float64Array;
  return { data: Numbers.from(list), shape: Array.isArray(value) ? [list.length] : [] };
}

async function bytes(response) {
  return new Uint8Array(await response.arrayBuffer());
}

/** A response that went well; else the server's own sentence as an error. A server that has too much
 *  to do is asked again after a while. */
async function asked(url, { missing = false, ...options } = {}, tries = 3) {
  let response;
  try {
    response = await fetch(url, options);
  } catch (error) {
    if (options.signal?.aborted) throw error;
    throw new Error("The server does not answer. Is `ipot serve` still running?");
  }
  if (response.ok) return response;
  if (missing && response.status === 404) return null;
  if (response.status === 503 && tries > 1) {
    const seconds = Number(response.headers.get("Retry-After")) || 1;
    await new Promise((done) => {
      setTimeout(done, 1000 * seconds);
      options.signal?.addEventListener("abort", done);
    });
    return asked(url, { missing, ...options }, tries - 1);
  }
  const said = await response.json().catch(() => ({}));
  throw new Error(said.error ?? `The server answered ${response.status} ${response.statusText}.`);
}
