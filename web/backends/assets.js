// Files of a static page. They are scripts that hand over their bytes, since a page that was opened
// from a folder (file://) may load scripts and may not fetch: `ipotAsset(name, base64 of gzip)`.

import { inflated } from "./npz.js";

const waiting = new Map();

globalThis.ipotAsset = (name, base64) => waiting.get(name)?.(base64);

const loaded = new Map();

/** The bytes of an asset, as `ipot serve --export` wrote it. It is loaded once, and kept unless
 *  nobody asks `again`. */
export function asset(name, { again = true } = {}) {
  if (!again) return load(name);
  if (!loaded.has(name)) loaded.set(name, load(name));
  return loaded.get(name);
}

async function load(name) {
  const said = new Promise((done) => waiting.set(name, done));
  await script(`assets/${name}.js`);
  const bytes = unpacked(await said);
  waiting.delete(name);
  return inflated(bytes, "gzip");
}

/** Run a script that lies beside the page. */
export function script(source) {
  return new Promise((done, failed) => {
    const made = document.createElement("script");
    made.src = source;
    made.onload = () => {
      made.remove(); // with its text, which may be megabytes
      done();
    };
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
