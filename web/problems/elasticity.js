// Cavities of the problem `elasticity` and the points around them, as `ipot/problems/elasticity.py`
// and `ipot/solvers/unit_cell.py` make them.

export const MODES = 5;
export const CENTRE = 0.5;
export const SECTORS = 36;
export const LAYERS = 3;
export const POINTS = SECTORS * LAYERS * 9;
export const GAPS = 41; // the published radii are at 42 angles, and the last is the first
export const DEVIATION = 16; // of each of the ten numbers, as the published file has it

/** One training cavity in a hundred is rarer than this: the sum of ten squares of normal numbers. */
export const RARE = 23.209;
/** As far as a cavity may be dragged. */
export const FARTHEST = 2 * RARE;

/** The ten waves of the exponent at an angle: its sum with θ is ρ(φ). */
export function waves(angle) {
  const row = [];
  for (let mode = 1; mode <= MODES; mode++) {
    const scale = 1 / (Math.sqrt(Math.PI) * (mode * mode + 9));
    row.push(Math.cos(mode * angle) * scale, Math.sin(mode * angle) * scale);
  }
  return row;
}

/** The cavity's radius at an angle, between 0.2 and 0.4. */
export function radius(theta, angle) {
  return 0.2 + 0.2 / (1 + Math.exp(dot(theta, waves(angle))));
}

/** The radii at the 42 angles that are kept of a cavity, as float32. */
export function radii(theta) {
  const found = new Float32Array(GAPS + 1);
  for (let k = 0; k < GAPS; k++) found[k] = radius(theta, (2 * Math.PI * k) / GAPS);
  found[GAPS] = found[0];
  return found;
}

/** The radius towards a place, linear between the radii that are kept. */
export function radiusTowards(kept, x, y) {
  const turn = 2 * Math.PI;
  let at = ((Math.atan2(y - CENTRE, x - CENTRE) / turn) * GAPS) % GAPS;
  if (at < 0) at += GAPS;
  const below = Math.min(Math.floor(at), GAPS - 1);
  return kept[below] + (at - below) * (kept[below + 1] - kept[below]);
}

/** θ after the edge has been pulled to a radius at an angle: the likeliest change that does it, so
 *  that the other parts follow softly; no farther than `FARTHEST`. */
export function pulled(theta, angle, target) {
  const wanted = Math.min(Math.max(target, 0.203), 0.397);
  const row = waves(angle);
  const exponent = Math.log(0.2 / (wanted - 0.2) - 1);
  const change = (exponent - dot(theta, row)) / dot(row, row);
  const moved = theta.map((number, k) => number + change * row[k]);
  if (rarity(moved) <= Math.max(FARTHEST, rarity(theta))) return moved;
  // As far along the way as is allowed: rarity is a quadratic in the part of the change.
  let low = 0;
  let high = 1;
  for (let k = 0; k < 40; k++) {
    const part = (low + high) / 2;
    const there = theta.map((number, i) => number + part * change * row[i]);
    if (rarity(there) <= FARTHEST) low = part;
    else high = part;
  }
  return theta.map((number, i) => number + low * change * row[i]);
}

/** How unlikely a cavity is in training: the sum of the squares of its ten standard numbers. */
export function rarity(theta) {
  return dot(theta, theta) / DEVIATION ** 2;
}

/** Ten numbers of the training's distribution. */
export function draw(random = Math.random) {
  return Array.from({ length: 2 * MODES }, () => DEVIATION * normal(random));
}

function normal(random) {
  const length = Math.sqrt(-2 * Math.log(1 - random()));
  return length * Math.cos(2 * Math.PI * random());
}

/** Nodes (line, node) of the mesh of biquadratic elements between the cavity and the square. */
export function nodes(theta) {
  const lines = 2 * SECTORS;
  const found = [];
  for (let line = 0; line < lines; line++) {
    const angle = (2 * Math.PI * line) / lines - Math.PI / 4;
    const r = radius(theta, angle);
    const inner = [CENTRE + r * Math.cos(angle), CENTRE + r * Math.sin(angle)];
    const outer = side(line, lines / 4);
    const row = [];
    for (let k = 0; k <= 2 * LAYERS; k++) {
      const part = k / (2 * LAYERS);
      row.push(inner.map((place, axis) => place + (outer[axis] - place) * part));
    }
    found.push(row);
  }
  return found;
}

/** The place on the sides of the square where a line ends, from the lower right corner on. */
function side(line, quarter) {
  const t = (line % quarter) / quarter;
  return [
    [1, t],
    [1 - t, 1],
    [0, 1 - t],
    [t, 0],
  ][Math.floor(line / quarter)];
}

const GAUSS = [-Math.sqrt(0.6), 0, Math.sqrt(0.6)];

/** A place in an element by its local coordinates in [-1, 1]: of the lines and along them. */
function within(mesh, sector, layer, around, outward) {
  const f = quadratics(outward);
  const g = quadratics(around);
  const place = [0, 0];
  for (let a = 0; a < 3; a++) {
    const line = mesh[(2 * sector + a) % mesh.length];
    for (let b = 0; b < 3; b++) {
      const weight = g[a] * f[b];
      place[0] += weight * line[2 * layer + b][0];
      place[1] += weight * line[2 * layer + b][1];
    }
  }
  return place;
}

function quadratics(x) {
  return [(x * (x - 1)) / 2, 1 - x * x, (x * (x + 1)) / 2];
}

/** The 972 Gauss points, as rows of x and y: sector by sector, layer by layer, nine in each. */
export function gaussPoints(theta) {
  const mesh = nodes(theta);
  const rows = new Float32Array(2 * POINTS);
  let row = 0;
  for (let sector = 0; sector < SECTORS; sector++) {
    for (let layer = 0; layer < LAYERS; layer++) {
      for (const around of GAUSS) {
        for (const outward of GAUSS) {
          const [x, y] = within(mesh, sector, layer, around, outward);
          rows[row++] = x;
          rows[row++] = y;
        }
      }
    }
  }
  return rows;
}

/** Which Gauss point is the k-th outward on the i-th of the lines of them around the cavity. */
export function onRing(i, k) {
  const [sector, around] = [Math.floor(i / 3), i % 3];
  const [layer, outward] = [Math.floor(k / 3), k % 3];
  return ((sector * LAYERS + layer) * 3 + around) * 3 + outward;
}

/** A closed mesh to paint what is known at the Gauss points on: lines through them around and
 *  outward, and one row each on the cavity's edge and on the sides, which take the value of the
 *  point next to them. `from[node]` is the Gauss point of a node. */
export function paintedMesh(theta) {
  const mesh = nodes(theta);
  const around = 3 * SECTORS;
  const across = 3 * LAYERS + 2;
  const x = new Float64Array((around + 1) * across);
  const y = new Float64Array((around + 1) * across);
  const from = new Int32Array((around + 1) * across);
  for (let i = 0; i <= around; i++) {
    const line = i % around;
    const [sector, local] = [Math.floor(line / 3), GAUSS[line % 3]];
    for (let k = 0; k < across; k++) {
      const point = Math.min(Math.max(k - 1, 0), across - 3);
      const edge = k === 0 ? -1 : k === across - 1 ? 1 : GAUSS[point % 3];
      const place = within(mesh, sector, Math.floor(point / 3), local, edge);
      const node = i * across + k;
      [x[node], y[node]] = place;
      from[node] = onRing(line, point);
    }
  }
  return { x, y, from, around: around + 1, across };
}

/** What a model takes, in each of the forms that one may be trained on: the radius towards every
 *  point, the radii at 41 angles, or the points as numbered nodes; and polar coordinates about the
 *  lower left corner beside x and y. */
export function inputs(theta, form = "points", polar = false) {
  const places = gaussPoints(theta);
  const kept = radii(theta);
  const queries = polar ? aboutCorner(places) : places;
  if (form === "points") {
    const values = new Float32Array(POINTS);
    for (let k = 0; k < POINTS; k++) {
      values[k] = radiusTowards(kept, places[2 * k], places[2 * k + 1]);
    }
    return { points: queries, values, queries, places };
  }
  if (form === "radii") {
    const points = Float32Array.from({ length: GAPS }, (_, k) => k / GAPS);
    return { points, values: kept.slice(0, GAPS), queries, places };
  }
  const points = Float32Array.from({ length: POINTS }, (_, k) => k / (POINTS - 1));
  return { points, values: places, queries, places };
}

const CORNER = 1e-4;

/** x, y, and the angle and the distance about a place next to the lower left corner. */
export function aboutCorner(places) {
  const rows = new Float32Array(2 * places.length);
  for (let k = 0; k < places.length / 2; k++) {
    const x = places[2 * k] - CORNER;
    const y = places[2 * k + 1] - CORNER;
    rows.set([places[2 * k], places[2 * k + 1], Math.atan2(y, x), Math.hypot(x, y)], 4 * k);
  }
  return rows;
}

/** θ of the likeliest cavity with given radii at the angles that are kept. */
export function thetaOf(kept) {
  // The waves are orthogonal on equidistant angles, so each number is a sum by itself.
  const theta = new Array(2 * MODES).fill(0);
  for (let k = 0; k < GAPS; k++) {
    const part = Math.min(Math.max((kept[k] - 0.2) / 0.2, 1e-6), 1 - 1e-6);
    const exponent = Math.log(1 / part - 1);
    waves((2 * Math.PI * k) / GAPS).forEach((wave, i) => (theta[i] += exponent * wave));
  }
  return theta.map((sum, i) => {
    const mode = Math.floor(i / 2) + 1;
    return (sum * 2 * Math.PI * (mode * mode + 9) ** 2) / GAPS;
  });
}

function dot(a, b) {
  let sum = 0;
  for (let k = 0; k < a.length; k++) sum += a[k] * b[k];
  return sum;
}
