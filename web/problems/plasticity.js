// Dies and the block of the problem `plasticity`, as `ipot/problems/plasticity.py` makes them.

export const KNOTS = 9;
export const SPREAD = 7.7; // mm: training heights at the seven inner knots lie from 0 to this
export const FRAMES = 20;
export const DURATION = 2; // ms from the first frame to one behind the last
export const SPEED = 3; // mm / ms, of the die
export const LENGTH = 50; // mm
export const HEIGHT = 15;
export const RIGHT = 0.35; // where the nodes begin: they are counted to the left and down
export const TOP = 14.9;

const ENDS = 7.5; // mm above the lowest point
const LOWEST = 15; // mm: just above the block
const FINE = 801;
const ROUNDS = 20;

/** Nodes along the block, across it, and times. */
export function grid(size = 101) {
  return [size, ((size - 1) * HEIGHT) / LENGTH + 1, FRAMES];
}

/** The natural cubic splines through equidistant knots, each one at its own knot and zero at the
 *  others, at so many places from 0 to 1: a row of nine numbers for each place. */
export function splines(places) {
  const n = KNOTS - 1;
  const slopes = cardinalCurvatures();
  const rows = [];
  for (let i = 0; i < places; i++) {
    const at = (i * n) / (places - 1);
    const cell = Math.min(Math.floor(at), n - 1);
    const b = at - cell;
    const a = 1 - b;
    const row = new Float64Array(KNOTS);
    row[cell] += a;
    row[cell + 1] += b;
    for (let k = 0; k < KNOTS; k++) {
      row[k] += ((a ** 3 - a) * slopes[k][cell] + (b ** 3 - b) * slopes[k][cell + 1]) / 6;
    }
    rows.push(row);
  }
  return rows;
}

/** Second derivatives at the knots, in units of their distance, of each of the nine splines. */
function cardinalCurvatures() {
  const n = KNOTS - 1;
  const found = [];
  for (let k = 0; k < KNOTS; k++) {
    const unit = (i) => (i === k ? 1 : 0);
    // Thomas' algorithm for M[i-1] + 4 M[i] + M[i+1] = 6 (y[i-1] - 2 y[i] + y[i+1]).
    const upper = [0];
    const right = [0];
    for (let i = 1; i < n; i++) {
      const pivot = 4 - upper[i - 1];
      upper.push(1 / pivot);
      right.push((6 * (unit(i - 1) - 2 * unit(i) + unit(i + 1)) - right[i - 1]) / pivot);
    }
    const curvature = new Float64Array(KNOTS);
    for (let i = n - 1; i > 0; i--) curvature[i] = right[i] - upper[i] * curvature[i + 1];
    found.push(curvature);
  }
  return found;
}

const FINE_ROWS = splines(FINE);

/** Heights at all nine knots, above the lowest point of the spline through them plus 15 mm. The ends
 *  are raised above that point, which moves it: a few rounds settle it. */
export function knots(heights) {
  let lowest = 0;
  let all;
  for (let round = 0; round <= ROUNDS; round++) {
    all = [lowest + ENDS, ...heights, lowest + ENDS];
    if (round < ROUNDS) lowest = Math.min(...FINE_ROWS.map((row) => dot(row, all)));
  }
  return all.map((height) => height - lowest + LOWEST);
}

/** The die's height in mm at so many places from right to left. */
export function profile(heights, places = 101) {
  const all = knots(heights);
  return Float64Array.from(splines(places), (row) => dot(row, all));
}

/** How far the die has come down at a frame, in mm. */
export function descent(frame) {
  return (SPEED * DURATION * frame) / FRAMES;
}

/** Where node (i, j) of the block is at first, in mm. */
export function reference(size, i, j) {
  const spacing = LENGTH / (size - 1);
  return [RIGHT - spacing * i, TOP - spacing * j];
}

/** Places, down the block and along time, at which a model of `size` nodes is asked: every so many
 *  of its nodes and frames, the last of each included, or one frame alone. */
export function queries(size, step = 1, frames = 1, alone = null) {
  const [along, across, times] = grid(size);
  const when = alone === null ? thinned(times, frames) : [alone];
  const lines = [thinned(along, step), thinned(across, step), when];
  const count = lines.reduce((product, line) => product * line.length, 1);
  const rows = new Float32Array(3 * count);
  let row = 0;
  for (const i of lines[0]) {
    for (const j of lines[1]) {
      for (const t of lines[2]) {
        rows[row++] = i / (along - 1);
        rows[row++] = j / (across - 1);
        rows[row++] = t / (times - 1);
      }
    }
  }
  return { queries: rows, lines };
}

function thinned(count, step) {
  const line = [];
  for (let k = 0; k < count - 1; k += step) line.push(k);
  line.push(count - 1);
  return line;
}

/** What a model takes: the die along a line. */
export function inputs(heights, size = 101) {
  const values = Float32Array.from(profile(heights, size));
  return { points: Float32Array.from(values, (_, i) => i / (size - 1)), values };
}

/** Seven heights of the training's distribution. */
export function draw(random = Math.random) {
  return Array.from({ length: KNOTS - 2 }, () => SPREAD * random());
}

/** Seven heights between 0 and 7.7 mm that make a given die, where there are any: a die does not say
 *  how high its knots were drawn, and the lowest that fit are taken. */
export function heightsOf(die) {
  const found = [];
  for (let k = 1; k < KNOTS - 1; k++) {
    const at = (k * (die.length - 1)) / (KNOTS - 1);
    const cell = Math.min(Math.floor(at), die.length - 2);
    found.push(die[cell] + (at - cell) * (die[cell + 1] - die[cell]));
  }
  const lowest = Math.min(...found);
  return found.map((height) => height - lowest);
}

/** Which of the heights could not have been drawn in training: dies are moved down until they touch
 *  the block, so that heights count from the lowest of them. */
export function beyond(heights) {
  const lowest = Math.min(...heights);
  return heights.map((height) => height - lowest > SPREAD + 1e-9);
}

function dot(row, heights) {
  let sum = 0;
  for (let k = 0; k < row.length; k++) sum += row[k] * heights[k];
  return sum;
}
