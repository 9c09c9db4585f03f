// The C-mesh around a bent NACA 0012, as `ipot/solvers/airfoil_mesh.py` makes it, and the inputs
// of a model of the problem `airfoil`.

export const REACH = 0.05; // training displacements lie within ± this
export const BOX_X = [-0.25, 0.25, 0.75, 1.25];
export const BOX_Y = 0.1;
export const AROUND = 221; // nodes along the full mesh, from the outflow around the body and back
export const ACROSS = 51; // nodes from the wall outwards

const WAKE = 50; // cells along one side of the wake
const BODY = 120; // cells around the body
const RADIUS = 40;
const CENTRE = 1;
const FIRST = 2 / 120; // the height of the cells at the wall
const GENTLE = 1.02; // growth from gap to gap on three quarters of a line

/** Half the thickness of a NACA 0012 with a closed trailing edge. */
export function thickness(x) {
  const powers = -0.126 * x - 0.3516 * x ** 2 + 0.2843 * x ** 3 - 0.1036 * x ** 4;
  return 0.6 * (0.2969 * Math.sqrt(x) + powers);
}

/** The undeformed airfoil as [x, y]: trailing edge, upper side, nose, lower side, trailing edge. */
export function surface() {
  const half = BODY / 2;
  const x = [0, 0.25 / (half - 1)];
  for (let k = 1; k < half; k++) x.push(k / (half - 1));
  const y = x.map(thickness);
  y[half] = 0; // the polynomial leaves a rounding error, which would open the wake
  const upper = x.map((place, k) => [place, y[k]]).reverse();
  const lower = x.slice(1).map((place, k) => [place, -y[k + 1]]);
  return upper.concat(lower);
}

/** How far a point of the box moves up when its nodes do: four below from left to right, then four
 *  above from right to left. Cubic along x, linear along y. */
export function lift(x, y, displacements) {
  const below = (BOX_Y - y) / (2 * BOX_Y);
  const above = (BOX_Y + y) / (2 * BOX_Y);
  let sum = 0;
  for (let k = 0; k < 4; k++) {
    const phi = basis(x, k);
    sum += phi * (below * displacements[k] + above * displacements[7 - k]);
  }
  return sum;
}

function basis(x, k) {
  let product = 1;
  for (let other = 0; other < 4; other++) {
    if (other !== k) product *= (x - BOX_X[other]) / (BOX_X[k] - BOX_X[other]);
  }
  return product;
}

/** Places from 0 to 1 whose gaps begin at `first` and grow geometrically; where one ratio would have
 *  to be steep, three quarters of the places grow gently. */
export function spaced(count, first) {
  const gaps = [];
  let gap = first;
  let ratio = growth(1, first, count - 1, 1.5);
  if (ratio > GENTLE) {
    const gentle = Math.floor((3 * count) / 4) - 1;
    for (let k = 0; k < gentle; k++) gaps.push(first * GENTLE ** k);
    gap = gaps[gentle - 1] * GENTLE;
    const filled = gaps.reduce((a, b) => a + b, 0);
    ratio = growth(1 - filled, gap, count - 1 - gentle, 2);
  }
  for (let k = 0; gaps.length < count - 1; k++) gaps.push(gap * ratio ** k);
  const places = [0];
  for (let k = 0; k < count - 2; k++) places.push(places[k] + gaps[k]);
  places.push(1);
  return places;
}

/** The growth from gap to gap that fills a length, by bisection. */
function growth(length, first, gaps, steepest) {
  const excess = (ratio) => (ratio - 1) * length - first * (ratio ** gaps - 1);
  let low = 1 + 1e-4;
  let high = steepest;
  const sign = Math.sign(excess(low));
  for (let k = 0; k < 100; k++) {
    const middle = (low + high) / 2;
    if (Math.sign(excess(middle)) === sign) low = middle;
    else high = middle;
  }
  return (low + high) / 2;
}

/** The far boundary: the nodes opposite to those of the wake and the body. */
function outer() {
  const nodes = [];
  for (let k = 0; k < WAKE; k++) nodes.push([RADIUS + ((CENTRE - RADIUS) * k) / WAKE, RADIUS]);
  for (let k = 0; k <= BODY; k++) {
    const angle = Math.PI / 2 + (Math.PI * k) / BODY;
    nodes.push([CENTRE + RADIUS * Math.cos(angle), RADIUS * Math.sin(angle)]);
  }
  for (let k = 1; k <= WAKE; k++) nodes.push([CENTRE + ((RADIUS - CENTRE) * k) / WAKE, -RADIUS]);
  return nodes;
}

const BODY_NODES = surface();
const OUTER = outer();
const [LAST, BEFORE] = BODY_NODES;
const ALONG = spaced(WAKE + 1, Math.hypot(LAST[0] - BEFORE[0], LAST[1] - BEFORE[1]) / (RADIUS - 1));
const OUTWARD = spaced(ACROSS, FIRST / RADIUS);

/** The airfoil after its box has been bent, as [x, y] from the trailing edge over the upper side. */
export function bent(displacements) {
  return BODY_NODES.map(([x, y]) => [x, y + lift(x, y, displacements)]);
}

/** The mesh around a bent airfoil: x and y of its nodes (around, outwards), and of every so many
 *  nodes where it is thinned. Nodes 50 and 170 of the full mesh are the trailing edge. */
export function mesh(displacements, step = 1) {
  const body = bent(displacements);
  const tail = body[0];
  const wake = ALONG.map((part) => [tail[0] + (RADIUS - tail[0]) * part, tail[1] * (1 - part)]);
  const inner = [...wake.slice().reverse(), ...body.slice(1, -1), ...wake];
  const around = (AROUND - 1) / step + 1;
  const across = (ACROSS - 1) / step + 1;
  const x = new Float64Array(around * across);
  const y = new Float64Array(around * across);
  for (let i = 0; i < around; i++) {
    const [x0, y0] = inner[i * step];
    const [x1, y1] = OUTER[i * step];
    for (let j = 0; j < across; j++) {
      const part = OUTWARD[j * step];
      x[i * across + j] = x0 + (x1 - x0) * part;
      y[i * across + j] = y0 + (y1 - y0) * part;
    }
  }
  return { x, y, around, across };
}

const PLAIN = new Array(8).fill(0);

/** What a model takes: indices along the mesh as points, and as values how far each node lies above
 *  that of the plain airfoil, or both coordinates where the model was trained on these. */
export function inputs(displacements, around = AROUND, coordinates = false) {
  const step = (AROUND - 1) / (around - 1);
  const made = mesh(displacements, step);
  const plain = mesh(PLAIN, step);
  const count = made.around * made.across;
  const channels = coordinates ? 2 : 1;
  const points = new Float32Array(2 * count);
  const values = new Float32Array(channels * count);
  for (let node = 0; node < count; node++) {
    points[2 * node] = Math.floor(node / made.across) / (made.around - 1);
    points[2 * node + 1] = (node % made.across) / (made.across - 1);
    if (coordinates) {
      values[2 * node] = made.x[node];
      values[2 * node + 1] = made.y[node];
    } else {
      values[node] = Math.fround(made.y[node]) - Math.fround(plain.y[node]);
    }
  }
  return { points, values, mesh: made };
}

/** The displacements that a mesh was made with, from the heights of nodes of its body: those of the
 *  first node are zero by the problem's convention, the others by least squares. */
export function displacementsOf(lifts, step = 1) {
  const rows = [];
  const heights = [];
  for (let node = WAKE; node < AROUND - WAKE; node++) {
    if (node % step) continue;
    const [x, y] = BODY_NODES[node - WAKE];
    const below = (BOX_Y - y) / (2 * BOX_Y);
    const row = [];
    for (let k = 1; k < 8; k++) row.push(basis(x, k < 4 ? k : 7 - k) * (k < 4 ? below : 1 - below));
    rows.push(row);
    heights.push(lifts(node / step));
  }
  return [0, ...leastSquares(rows, heights)];
}

/** Seven displacements of the training's distribution; the first node stays. */
export function draw(random = Math.random) {
  const moved = [0];
  for (let k = 1; k < 8; k++) moved.push(REACH * (2 * random() - 1));
  return moved;
}

/** Which of the displacements lie beyond those seen in training. */
export function beyond(displacements) {
  return displacements.map((moved) => Math.abs(moved) > REACH + 1e-9);
}

function leastSquares(rows, heights) {
  const n = rows[0].length;
  // Modified Gram-Schmidt: the normal equations would square a condition number of hundreds.
  const q = [];
  const r = [];
  for (let k = 0; k < n; k++) {
    const column = rows.map((row) => row[k]);
    r.push(new Array(n).fill(0));
    for (let j = 0; j < k; j++) {
      r[j][k] = dot(q[j], column);
      column.forEach((_, i) => (column[i] -= r[j][k] * q[j][i]));
    }
    r[k][k] = Math.sqrt(dot(column, column));
    q.push(column.map((entry) => entry / r[k][k]));
  }
  const found = new Array(n).fill(0);
  for (let k = n - 1; k >= 0; k--) {
    let rest = dot(q[k], heights);
    for (let j = k + 1; j < n; j++) rest -= r[k][j] * found[j];
    found[k] = rest / r[k][k];
  }
  return found;
}

function dot(a, b) {
  let sum = 0;
  for (let i = 0; i < a.length; i++) sum += a[i] * b[i];
  return sum;
}
