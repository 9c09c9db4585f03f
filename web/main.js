// The page: which models there are, which one is open, and light or dark.

import * as server from "./backends/server.js";
import { ServerBackend } from "./backends/server.js";
import * as wasm from "./backends/wasm.js";
import { WasmBackend } from "./backends/wasm.js";
import { sceneFor } from "./scenes/index.js";
import { element } from "./shell/elements.js";
import { startLanding } from "./shell/landing.js";
import { percent } from "./shell/numbers.js";
import { Room } from "./shell/room.js";

const kind = document.querySelector('meta[name="ipot-backend"]').content;
const source = kind === "server" ? server : wasm;
const Backend = kind === "server" ? ServerBackend : WasmBackend;

const list = document.querySelector("nav ul");
const main = document.querySelector("main");
let room = null;
let opening = 0;

/** What tests and the curious may look at: the scene, the last question with its answer, and any
 *  model, to be asked from the console: `(await ipot.backend("darcy")).predict({ ... })`. */
globalThis.ipot = {
  kind,
  backend: async (name) => new Backend(await source.facts(name)),
  get room() {
    return room;
  },
};

async function open(name) {
  const turn = ++opening;
  room?.close();
  room = null;
  for (const link of list.querySelectorAll("a")) {
    link.toggleAttribute("aria-current", link.dataset.name === name);
  }
  try {
    const model = await source.facts(name);
    if (turn !== opening) return;
    const scene = sceneFor(model);
    const title = scene?.title ?? model.title ?? name;
    document.title = `${title} · ipot`;
    const heading = element("header", { class: "heading" }, element("h1", {}, title));
    heading.append(element("p", {}, scene?.about ?? "There is no picture for this model yet."));
    const error = model.error?.held_out ?? model.error?.relative_l2;
    if (error && scene?.scored !== false) {
      const said = `Mean error on test samples: ${percent(error)}`;
      heading.append(element("p", { class: "score" }, said));
    }
    main.replaceChildren(heading);
    if (!scene) return;
    room = new Room(model, new Backend(model));
    main.append(room.element);
    room.scene = (await scene.open(room)) ?? {};
  } catch (error) {
    if (turn === opening) main.replaceChildren(element("p", { class: "error" }, error.message));
  }
}

/** The name of the model that the address asks for. */
function asked() {
  const here = new URL(location.href);
  return here.searchParams.get("model") ?? decodeURIComponent(here.hash.slice(1));
}

function startTheme() {
  const button = document.querySelector("#theme");
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const root = document.documentElement;
  const shown = () => root.dataset.theme ?? (dark.matches ? "dark" : "light");
  const tell = () => {
    button.textContent = shown() === "dark" ? "Light" : "Dark";
    dispatchEvent(new Event("ipot-theme"));
  };
  button.addEventListener("click", () => {
    root.dataset.theme = shown() === "dark" ? "light" : "dark";
    tell();
  });
  dark.addEventListener("change", tell);
  tell();
}

async function start() {
  startTheme();
  startLanding(document.querySelector("#landing"), document.querySelector("#about"), {
    solves: kind === "server",
  });
  let models;
  try {
    models = await source.models();
  } catch (error) {
    main.replaceChildren(element("p", { class: "error" }, error.message));
    return;
  }
  list.replaceChildren(
    ...models.map((model) => {
      const text = sceneFor(model)?.title ?? model.title ?? model.name;
      const address = kind === "server" ? `?model=${encodeURIComponent(model.name)}` : `#${encodeURIComponent(model.name)}`;
      const link = element("a", { href: address, "data-name": model.name }, text);
      link.addEventListener("click", (event) => {
        if (event.metaKey || event.ctrlKey || event.shiftKey) return;
        event.preventDefault();
        history.pushState(null, "", address);
        open(model.name);
      });
      return element("li", {}, link);
    }),
  );
  addEventListener("popstate", () => open(asked() || models[0].name));
  if (models.length) await open(asked() || models[0].name);
  else main.replaceChildren(element("p", {}, "There are no models here."));
}

start();
