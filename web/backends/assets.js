// Files of a static page. They are scripts that hand over their bytes, since a page that was opened
// from a folder (file://) may load scripts and may not fetch: `ipotAsset(name, base64 of gzip)`.

import { inflated } from "./npz.js";

const waiting = new Map();

globalThis.ipotAsset = (name, base64) => waiting.get(name)?.(base64);

const loaded = new Map();

/** The bytes of an asset, as `ipot serve --export` wrote it. It is loaded once. */
export function asset(name) {
  if (!loaded.has(name)) loaded.set(name, load(name));
  return loaded.get(name);
}

async function load(name) {
  const said = new Promise((done) => waiting.set(name, done));
  await script(`assets/${name}.js`);
  return inflated(unpacked(await said), "gzip");
}

/** Run a script that lies beside the page. */
export function script(source) {
  return new Promise((done, failed) => {
    const made = document.createElement("script");
    made.src = source;
    made.onload = done;
    made.onerror = () => failed(new Error(`${source} is missing from this page's folder.`));
    document.head.append(made);
  });
}

function unpacked(base64) {
  const text = atob(base64);
  const bytes = new Uint8Array(text.length);
  for (let k = 0; k < text.length; k++) bytes[k] = text.charCodeAt(k);
  return bytes;
}
