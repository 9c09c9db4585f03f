// Inputs of a model of the problem `darcy`: permeabilities of two values on the unit square.

export const LOW = 3;
export const HIGH = 12;
const TAU = 3;

/** The share of the square that is HIGH, least and most of 1000 draws: 0.3095 and 0.6883 of
 *  `random_fields.neumann_square(noise, alpha=2.0, tau=3.0) >= 0` with noise of 128 x 128 for the
 *  indices 0 to 999 of the stream "darcy/train", seed 0, as `ipot.problems.darcy` draws them. */
export const SHARES = [0.3, 0.7];

/** Sensors below which most of what is painted is not seen. */
export const FEW = 64;

/** The share of cells that are HIGH. */
export function highShare(cells) {
  let high = 0;
  for (const value of cells) if (value === HIGH) high++;
  return high / cells.length;
}

/** Centres of n x n cells as x0 y0 x1 y1 …, row by row of x. */
export function centres(n) {
  const found = new Float32Array(2 * n * n);
  for (let i = 0; i < n; i++) {
    for (let j = 0; j < n; j++) {
      found[2 * (i * n + j)] = (i + 0.5) / n;
      found[2 * (i * n + j) + 1] = (j + 0.5) / n;
    }
  }
  return found;
}

/** A draw from the distribution of the training on n x n cells: HIGH where a Gaussian field with
 *  covariance τ²(-Δ + τ²)⁻² and no-flux walls is positive, LOW elsewhere. `normal` draws numbers.
 *
 *  The field is a sum of cosines. Those of `modes` a side are taken: the weights fall with the
 *  square of the frequency, so that the rest would not be seen. */
export function randomPermeability(n, normal, modes = 48) {
  const basis = cosines(n, modes);
  const weights = new Float64Array(modes * modes);
  for (let p = 0; p < modes; p++) {
    for (let q = 0; q < modes; q++) {
      if (p || q) weights[p * modes + q] = normal() / (Math.PI ** 2 * (p * p + q * q) + TAU ** 2);
    }
  }
  const half = new Float64Array(n * modes); // summed over p
  for (let i = 0; i < n; i++) {
    for (let p = 0; p < modes; p++) {
      const along = basis[i * modes + p];
      for (let q = 0; q < modes; q++) half[i * modes + q] += along * weights[p * modes + q];
    }
  }
  const found = new Float32Array(n * n);
  for (let i = 0; i < n; i++) {
    for (let j = 0; j < n; j++) {
      let sum = 0;
      for (let q = 0; q < modes; q++) sum += half[i * modes + q] * basis[j * modes + q];
      found[i * n + j] = sum >= 0 ? HIGH : LOW;
    }
  }
  return found;
}

/** cos(π p x) at n cell centres, of norm one. */
function cosines(n, modes) {
  const found = new Float64Array(n * modes);
  for (let i = 0; i < n; i++) {
    for (let p = 0; p < modes; p++) {
      const size = p ? Math.SQRT2 : 1;
      found[i * modes + p] = size * Math.cos((Math.PI * p * (i + 0.5)) / n);
    }
  }
  return found;
}

/** Numbers of the standard normal distribution (Box and Muller), from a generator of uniform ones. */
export function normalNumbers(uniform = Math.random) {
  let spare = null;
  return () => {
    if (spare !== null) {
      const found = spare;
      spare = null;
      return found;
    }
    const radius = Math.sqrt(-2 * Math.log(1 - uniform()));
    const angle = 2 * Math.PI * uniform();
    spare = radius * Math.sin(angle);
    return radius * Math.cos(angle);
  };
}

/** Uniform numbers that a seed repeats (mulberry32). */
export function seeded(seed) {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 4294967296;
  };
}

/** Which cell of n x n a place is in. */
export function cellOf([x, y], n) {
  const line = (value) => Math.min(n - 1, Math.max(0, Math.floor(value * n)));
  return line(x) * n + line(y);
}

/** Set the cells whose centres lie within `radius` of the line from one place to another; true if
 *  any of them changed. */
export function brush(cells, n, from, to, radius, value) {
  const span = (a, b) => [
    Math.max(0, Math.floor((Math.min(a, b) - radius) * n)),
    Math.min(n - 1, Math.ceil((Math.max(a, b) + radius) * n)),
  ];
  const [left, right] = span(from[0], to[0]);
  const [bottom, top] = span(from[1], to[1]);
  let changed = false;
  for (let i = left; i <= right; i++) {
    for (let j = bottom; j <= top; j++) {
      const near = isNear((i + 0.5) / n, (j + 0.5) / n, from, to, radius);
      if (near && cells[i * n + j] !== value) {
        cells[i * n + j] = value;
        changed = true;
      }
    }
  }
  return changed;
}

/** The places x0 y0 x1 y1 … that do not lie within `radius` of the line from one place to another. */
export function awayFrom(places, from, to, radius) {
  const kept = [];
  for (let k = 0; k < places.length; k += 2) {
    const [x, y] = [places[k], places[k + 1]];
    if (!isNear(x, y, from, to, radius)) kept.push(x, y);
  }
  return Float32Array.from(kept);
}

function isNear(x, y, from, to, radius) {
  const [dx, dy] = [to[0] - from[0], to[1] - from[1]];
  const length = dx * dx + dy * dy;
  const [right, up] = [x - from[0], y - from[1]];
  const along = length ? Math.min(1, Math.max(0, (right * dx + up * dy) / length)) : 0;
  return (right - along * dx) ** 2 + (up - along * dy) ** 2 <= radius * radius;
}
