// Arrays in NumPy's npz: a ZIP archive of .npy files that are stored as they are.

const KINDS = {
  "<f4": Float32Array,
  "<f8": Float64Array,
  "<i2": Int16Array,
  "<i4": Int32Array,
  "<i8": BigInt64Array,
  "<u2": Uint16Array,
  "<u4": Uint32Array,
  "<u8": BigUint64Array,
  "|u1": Uint8Array,
  "|b1": Uint8Array,
  "|i1": Int8Array,
};

/** An array: numbers row by row in `data`, and how many along every axis in `shape`. */
export function array(data, shape) {
  const size = shape.reduce((product, n) => product * n, 1);
  if (data.length !== size) throw new Error(`${data.length} numbers do not have shape [${shape}]`);
  return { data, shape };
}

/** The bytes of an archive of named arrays. */
export function writeNpz(arrays) {
  const text = new TextEncoder();
  const pieces = [];
  const entries = [];
  let offset = 0;
  for (const [name, { data, shape }] of Object.entries(arrays)) {
    const path = text.encode(`${name}.npy`);
    const body = npy(data, shape);
    const facts = entryFacts(body, path.length);
    const head = new Uint8Array([0x50, 0x4b, 3, 4, ...facts, 0, 0]);
    pieces.push(head, path, body);
    entries.push({ facts, path, offset });
    offset += head.length + path.length + body.length;
  }
  const start = offset;
  for (const { facts, path, offset: at } of entries) {
    const rest = [...Array(12).fill(0), ...u32(at)];
    const head = new Uint8Array([0x50, 0x4b, 1, 2, 20, 0, ...facts, ...rest]);
    pieces.push(head, path);
    offset += head.length + path.length;
  }
  const count = [entries.length & 255, entries.length >> 8];
  const sizes = [...u32(offset - start), ...u32(start)];
  pieces.push(new Uint8Array([0x50, 0x4b, 5, 6, 0, 0, 0, 0, ...count, ...count, ...sizes, 0, 0]));
  return joined(pieces);
}

/** The arrays of an archive by their names; float16 becomes float32. */
export async function readNpz(bytes) {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  let end = bytes.length - 22;
  while (end >= 0 && view.getUint32(end, true) !== 0x06054b50) end--;
  if (end < 0) throw new Error("these bytes are no npz archive: the list at its end is missing");
  const found = {};
  let at = view.getUint32(end + 16, true);
  for (let k = view.getUint16(end + 10, true); k > 0; k--) {
    const method = view.getUint16(at + 10, true);
    const size = view.getUint32(at + 20, true);
    const lengths = [28, 30, 32].map((place) => view.getUint16(at + place, true));
    const local = view.getUint32(at + 42, true);
    const name = new TextDecoder().decode(bytes.subarray(at + 46, at + 46 + lengths[0]));
    const begin = local + 30 + view.getUint16(local + 26, true) + view.getUint16(local + 28, true);
    const stored = bytes.slice(begin, begin + size);
    const body = method === 8 ? await inflated(stored, "deflate-raw") : stored;
    found[name.replace(/\.npy$/, "")] = readNpy(body, name);
    at += 46 + lengths[0] + lengths[1] + lengths[2];
  }
  return found;
}

/** Bytes that were compressed ("gzip" or "deflate-raw") as they were. */
export async function inflated(bytes, format) {
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream(format));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

function readNpy(bytes, name) {
  const long = bytes[6] > 1;
  const size = long ? new DataView(bytes.buffer).getUint32(8, true) : bytes[8] + 256 * bytes[9];
  const start = (long ? 12 : 10) + size;
  const header = new TextDecoder().decode(bytes.subarray(long ? 12 : 10, start));
  const kind = /'descr': '([^']*)'/.exec(header)?.[1];
  const axes = /'shape': \(([^)]*)\)/.exec(header)[1].split(",");
  const shape = axes.filter((n) => n.trim()).map(Number);
  const body = bytes.slice(start).buffer;
  const columns = /'fortran_order': True/.test(header);
  const ordered = (data) => array(columns ? rowByRow(data, shape) : data, shape);
  if (kind === "<f2") return ordered(widened(new Uint16Array(body)));
  if (/^<U\d+$/.test(kind)) return { data: texts(new Uint32Array(body), Number(kind.slice(2))), shape };
  if (!(kind in KINDS)) throw new Error(`${name} holds ${kind}, which the page does not read`);
  return ordered(new KINDS[kind](body));
}

/** Numbers that are stored column by column, row by row. */
function rowByRow(data, shape) {
  const strides = shape.map((_, axis) => shape.slice(0, axis).reduce((product, n) => product * n, 1));
  const found = data.slice();
  const place = shape.map(() => 0);
  for (let k = 0; k < found.length; k++) {
    found[k] = data[place.reduce((sum, n, axis) => sum + n * strides[axis], 0)];
    for (let axis = shape.length - 1; axis >= 0 && ++place[axis] === shape[axis]; axis--) place[axis] = 0;
  }
  return found;
}

/** Texts of a fixed length, four bytes a letter. */
function texts(letters, length) {
  const found = [];
  for (let first = 0; first < letters.length; first += length) {
    const all = Array.from(letters.subarray(first, first + length)).filter(Boolean);
    found.push(all.map((letter) => String.fromCodePoint(letter)).join(""));
  }
  return found;
}

function npy(data, shape) {
  const kind = data instanceof Float64Array ? "<f8" : data instanceof Int32Array ? "<i4" : "<f4";
  const numbers = kind === "<f4" ? Float32Array.from(data) : data;
  const axes = shape.length === 1 ? `${shape[0]},` : shape.join(", ");
  let header = `{'descr': '${kind}', 'fortran_order': False, 'shape': (${axes}), }`;
  header = `${header.padEnd(Math.ceil((header.length + 11) / 64) * 64 - 11)}\n`;
  const start = new TextEncoder().encode(`\u0000NUMPY`);
  start[0] = 0x93;
  const length = [header.length & 255, header.length >> 8];
  return joined([
    start,
    new Uint8Array([1, 0, ...length]),
    new TextEncoder().encode(header),
    new Uint8Array(numbers.buffer, numbers.byteOffset, numbers.byteLength),
  ]);
}

/** What both heads of an entry say: version, flags, method, date, check, sizes, length of name. */
function entryFacts(body, nameLength) {
  const sizes = u32(body.length);
  return [20, 0, 0, 0, 0, 0, 0, 0, 0x21, 0, ...u32(crc32(body)), ...sizes, ...sizes, nameLength, 0];
}

function u32(value) {
  return [value & 255, (value >>> 8) & 255, (value >>> 16) & 255, value >>> 24];
}

function joined(pieces) {
  const found = new Uint8Array(pieces.reduce((sum, piece) => sum + piece.length, 0));
  let at = 0;
  for (const piece of pieces) {
    found.set(piece, at);
    at += piece.length;
  }
  return found;
}

let crcs = null;

function crc32(bytes) {
  crcs ??= Uint32Array.from({ length: 256 }, (_, n) => {
    for (let k = 0; k < 8; k++) n = n & 1 ? 0xedb88320 ^ (n >>> 1) : n >>> 1;
    return n;
  });
  let found = -1;
  for (const byte of bytes) found = crcs[(found ^ byte) & 255] ^ (found >>> 8);
  return (found ^ -1) >>> 0;
}

/** Half precision as float32. */
function widened(halves) {
  return Float32Array.from(halves, (half) => {
    const sign = half & 0x8000 ? -1 : 1;
    const exponent = (half >> 10) & 31;
    const part = half & 1023;
    if (exponent === 31) return part ? NaN : sign * Infinity;
    return sign * (exponent ? 2 ** (exponent - 15) * (1 + part / 1024) : 2 ** -14 * (part / 1024));
  });
}
