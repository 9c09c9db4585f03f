// What any model answers, as something to look at: where it is, how places are joined, which numbers.

/** Numbers of any kind as float64: whole numbers of eight bytes come as BigInt. */
export function numbers(data) {
  return Float64Array.from(data, Number);
}

/** Places to paint on: `points` row by row with `dimension` coordinates, of which `rows` have an
 *  answer each; `triangles` joins them where that is known. Where one answer holds for a whole cell,
 *  `from` says which of the rows every point takes its number from. */
export function placesOf({ data, shape }, dimension) {
  const points = numbers(data);
  const columns = shape.length > 1 || dimension === 1 ? dimension : shape.at(-1);
  const rows = points.length / columns;
  const grid = shape.length === 3 && columns === 2 ? shape.slice(0, 2) : gridIn(points, columns);
  const triangles = grid ? trianglesOf(grid) : null;
  return { points, dimension: columns, rows, triangles, from: null };
}

/** How many places a regular grid in the plane has along its two axes; null where it is none. */
export function gridIn(points, dimension) {
  if (dimension !== 2) return null;
  const rows = points.length / 2;
  const steady = [0, 1].find((axis) => points[axis] === points[2 + axis]);
  if (steady === undefined || rows < 4) return null;
  let along = 1;
  while (along < rows && points[2 * along + steady] === points[steady]) along++;
  if (along < 2 || along === rows || rows % along) return null;
  for (let row = 0; row < rows; row++) {
    const line = row - (row % along);
    if (points[2 * row + steady] !== points[2 * line + steady]) return null;
    if (points[2 * row + 1 - steady] !== points[2 * (row % along) + 1 - steady]) return null;
  }
  return [rows / along, along];
}

function trianglesOf([nx, ny]) {
  const found = [];
  for (let i = 0; i + 1 < nx; i++) {
    for (let j = 0; j + 1 < ny; j++) {
      const [a, b] = [i * ny + j, (i + 1) * ny + j];
      found.push(a, b, b + 1, a, b + 1, a + 1);
    }
  }
  return Uint32Array.from(found);
}

// VTK's types of flat cells, by the corners of their triangles. The first nodes of curved cells are
// their corners.
const CORNERS = {
  5: [0, 1, 2],
  22: [0, 1, 2],
  34: [0, 1, 2],
  8: [0, 1, 3, 0, 3, 2],
  9: [0, 1, 2, 0, 2, 3],
  23: [0, 1, 2, 0, 2, 3],
  28: [0, 1, 2, 0, 2, 3],
};
const POLYGON = 7;

/** The triangles of a mesh as files have it, and the cell that each belongs to. Cells that are not
 *  flat have none. */
export function trianglesIn({ connectivity, offsets, types }) {
  const corners = [];
  const cells = [];
  let start = 0;
  Array.from(offsets, Number).forEach((end, cell) => {
    let local = CORNERS[types[cell]];
    if (Number(types[cell]) === POLYGON) {
      local = [];
      for (let k = 1; k + 1 < end - start; k++) local.push(0, k, k + 1);
    }
    for (const corner of local ?? []) corners.push(Number(connectivity[start + corner]));
    for (let k = 0; k < (local ?? []).length; k += 3) cells.push(cell);
    start = end;
  });
  return { corners: Uint32Array.from(corners), cells };
}

/** The answer to a file, from the arrays of an .npz that `ipot predict` writes: a case with its mesh,
 *  or arrays by name. Gives `places`, `values` (frames, rows, outputs) and, as far as they are there,
 *  `low`, `high`, `truth`, `times`; `samples` is how many the file had, of which this is the first. */
export function answerIn(arrays, { outputs, query_dimension: dimension }) {
  return "prediction" in arrays
    ? ofArrays(arrays, outputs.length, dimension)
    : ofCase(arrays, outputs, dimension);
}

function ofArrays({ queries, prediction, low, high, times }, channels, dimension) {
  const frames = times ? times.data.length : 1;
  const given = queries.data.length / dimension;
  const answered = prediction.data.length / (frames * channels);
  const samples = Math.round(answered / given) || 1;
  const first = (found) => found && Float32Array.from(found.data.subarray(0, found.data.length / samples));
  return {
    places: placesOf(queries, dimension),
    values: first(prediction),
    low: first(low),
    high: first(high),
    truth: null,
    times: times ? Array.from(times.data, Number) : null,
    frames,
    samples,
  };
}

function ofCase(arrays, outputs, dimension) {
  const named = {};
  for (const [path, found] of Object.entries(arrays)) {
    const [group, name] = path.split("/");
    if (group === "fields" || group === "cells") named[decodeURIComponent(name)] = { group, found };
  }
  // A truth of the same name stays what it is, and times are counted: u, u_predicted, u_t1, …
  const called = (output, time) => {
    const name = `${output}${time}`;
    return `${name}_predicted` in named ? `${name}_predicted` : name;
  };
  const timed = !(called(outputs[0], "") in named) && called(outputs[0], "_t1") in named;
  const times = [""];
  if (timed) {
    times[0] = "_t1";
    while (called(outputs[0], `_t${times.length + 1}`) in named) times.push(`_t${times.length + 1}`);
  }
  const told = times.map((time) => outputs.map((output) => called(output, time)));
  const missing = told.flat().find((name) => !(name in named));
  if (missing !== undefined) throw new Error(`The answer has no field ${missing}.`);
  const rows = named[told[0][0]].found.data.length;
  const together = (suffix) => {
    const values = new Float32Array(times.length * rows * outputs.length);
    for (const [t, names] of told.entries()) {
      for (const [k, name] of names.entries()) {
        const from = named[suffix(name)]?.found.data;
        if (!from) return null;
        from.forEach((value, row) => (values[(t * rows + row) * outputs.length + k] = Number(value)));
      }
    }
    return values;
  };
  const before = (name) => (name.endsWith("_predicted") ? name.slice(0, -10) : "");
  return {
    places: ofMesh(arrays, dimension, named[told[0][0]].group === "cells"),
    values: together((name) => name),
    low: together((name) => `${name}_low`),
    high: together((name) => `${name}_high`),
    truth: together(before),
    times: null,
    frames: times.length,
    samples: 1,
  };
}

/** Places of a case: of its points, or of its cells. Files have three coordinates even of a plane. */
function ofMesh(arrays, dimension, onCells) {
  const [count, columns] = arrays.points.shape;
  const points = new Float64Array(count * dimension);
  for (let row = 0; row < count; row++) {
    for (let axis = 0; axis < dimension; axis++) {
      points[row * dimension + axis] = Number(arrays.points.data[row * columns + axis]);
    }
  }
  const mesh = {};
  for (const name of ["connectivity", "offsets", "types"]) mesh[name] = arrays[`mesh/${name}`]?.data;
  const known = mesh.connectivity && mesh.offsets && mesh.types;
  const { corners, cells } = known ? trianglesIn(mesh) : { corners: [], cells: [] };
  if (!onCells) {
    const triangles = corners.length ? corners : null;
    const plain = placesOf({ data: points, shape: [count, dimension] }, dimension);
    return { ...plain, triangles: triangles ?? plain.triangles };
  }
  const flat = Array.from(corners, (node) => {
    return Array.from(points.subarray(node * dimension, (node + 1) * dimension));
  }).flat();
  return {
    points: Float64Array.from(flat),
    dimension,
    rows: mesh.offsets.length,
    triangles: Uint32Array.from(corners, (_, k) => k),
    from: Int32Array.from(corners, (_, k) => cells[Math.floor(k / 3)]),
  };
}

/** One output at one frame, of values (frames, rows, outputs); of cells, one for each point. */
export function shownOf(values, { rows, from }, frame, output, outputs) {
  const at = (row) => values[(frame * rows + row) * outputs + output];
  return Float32Array.from({ length: from ? from.length : rows }, (_, k) => at(from ? from[k] : k));
}

/** Every so many of the places, so that there are no more than so many; alone, since what joined them
 *  is gone. `rows` of the first are taken. */
export function thinned({ data, shape }, dimension, most) {
  const rows = data.length / dimension;
  const step = Math.max(1, Math.ceil(rows / most));
  const found = [];
  for (let row = 0; row < rows; row += step) {
    for (let axis = 0; axis < dimension; axis++) found.push(Number(data[row * dimension + axis]));
  }
  const kept = found.length / dimension;
  return { data: Float32Array.from(found), shape: shape.length > 1 ? [kept, dimension] : [kept] };
}
