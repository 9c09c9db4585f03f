// Builds the page into ipot/serve/page: `npm ci && npm run build` in this folder.
//
// page.js is the page, engine.js runs models where there is no server, assets/runtime.wasm.js is ONNX
// Runtime's WASM. built.json has the SHA-256 of every source and of every file that was made: a test
// (tests/browser/test_bundle.py) compares both. NOTICES.txt must name all packages that are bundled, with
// their versions: a new one is built when its licences have been looked at.

import { createHash } from "node:crypto";
import { copyFileSync, existsSync, mkdirSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { dirname, join, relative } from "node:path";
import { fileURLToPath } from "node:url";
import { gunzipSync, gzipSync } from "node:zlib";
import { build } from "esbuild";

const here = dirname(fileURLToPath(import.meta.url));
const out = join(here, "..", "ipot", "serve", "page");
const runtime = join(here, "node_modules/onnxruntime-web/dist/ort-wasm-simd-threaded.wasm");

const options = {
  absWorkingDir: here,
  bundle: true,
  format: "iife",
  target: ["es2022"],
  minify: true,
  charset: "utf8",
  legalComments: "inline",
  logLevel: "warning",
};

/** The WASM as a script, compressed; left alone where it is there: zlib's releases differ. */
function writeRuntime() {
  const wasm = readFileSync(runtime);
  const target = join(out, "assets", "runtime.wasm.js");
  if (existsSync(target)) {
    const base64 = /,"([^"]*)"/.exec(readFileSync(target, "utf8"))?.[1] ?? "";
    if (gunzipSync(Buffer.from(base64, "base64")).equals(wasm)) return;
  }
  const packed = gzipSync(wasm, { level: 9 }).toString("base64");
  writeFileSync(target, `ipotAsset("runtime.wasm","${packed}");\n`);
}

/** All files below a folder but what is installed or made. */
function filesOf(folder) {
  return readdirSync(folder, { withFileTypes: true }).flatMap((entry) => {
    if (["node_modules", "built.json"].includes(entry.name)) return [];
    const path = join(folder, entry.name);
    return entry.isDirectory() ? filesOf(path) : [path];
  });
}

function hashes(folder) {
  const found = filesOf(folder).map((path) => [
    relative(folder, path).replaceAll("\\", "/"),
    createHash("sha256").update(readFileSync(path)).digest("hex"),
  ]);
  return Object.fromEntries(found.sort(([a], [b]) => (a < b ? -1 : 1)));
}

/** Refuse packages in a bundle that the notices do not name. */
function refuseUnnamed({ inputs }) {
  const notices = readFileSync(join(here, "NOTICES.txt"), "utf8");
  for (const path of Object.keys(inputs)) {
    const name = /^node_modules\/((?:@[^/]+\/)?[^/]+)\//.exec(path)?.[1];
    if (!name) continue;
    const facts = JSON.parse(readFileSync(join(here, "node_modules", name, "package.json"), "utf8"));
    const line = `${name} ${facts.version}`;
    if (!notices.split("\n").includes(line)) {
      throw new Error(`NOTICES.txt has no line "${line}": look at its licences, and put them there`);
    }
  }
}

async function bundle(entry, name) {
  const { metafile } = await build({
    ...options,
    metafile: true,
    entryPoints: [entry],
    outfile: join(out, name),
  });
  refuseUnnamed(metafile);
}

mkdirSync(join(out, "assets"), { recursive: true });
await bundle("main.js", "page.js");
await bundle("backends/engine.js", "engine.js");
for (const name of ["index.html", "page.css", "icon.svg", "NOTICES.txt"]) {
  copyFileSync(join(here, name), join(out, name));
}
writeRuntime();
const built = { sources: hashes(here), files: hashes(out) };
writeFileSync(join(out, "built.json"), `${JSON.stringify(built, null, 1)}\n`);
