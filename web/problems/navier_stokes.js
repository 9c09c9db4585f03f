/**
 * The periodic square: its grid, vortices painted on it, and frames as the model's inputs.
 *
 * Fields are Float32Arrays, row by row: entry i * n + j lies at (i / n, j / n), as in
 * `ipot.problems.base.GridProblem.coordinates`.
 */

/** Vorticity that no first frame of the training reaches, by the covariance of the beginning. The
 *  largest of 1000 draws of `ipot.problems.navier_stokes` is 0.982 ("file") or 0.228 ("paper") at
 *  t = 0 (indices 0 to 999 of the stream "navier_stokes/train", seed 0, 64 x 64 points), and the
 *  forcing adds at most 0.142 until the first frame at t = 1, whatever the viscosity. */
const STRONGEST = { file: 1.15, paper: 0.4 };

/** Whether a first frame has more vorticity somewhere than any of the training. */
export function beyond(field, convention = "file") {
  const most = STRONGEST[convention] ?? STRONGEST.file;
  return field.some((value) => Math.abs(value) > most);
}

/** Points (n * n, 2) of a grid with n points a side. */
export function torusPoints(n) {
  const points = new Float32Array(2 * n * n);
  for (let i = 0, k = 0; i < n; i++) {
    for (let j = 0; j < n; j++) {
      points[k++] = i / n;
      points[k++] = j / n;
    }
  }
  return points;
}

/** A bell of unit height on the circle of length 1, at n points; images next door are added. */
function periodicBell(n, centre, radius) {
  const bell = new Float64Array(n);
  for (let i = 0; i < n; i++) {
    for (let image = -2; image <= 2; image++) {
      const distance = (i / n - centre + image) / radius;
      bell[i] += Math.exp((-distance * distance) / 2);
    }
  }
  return bell;
}

/**
 * Add a vortex at (x, y) in place. The mean of what is added is taken off again: on the torus the
 * integral of vorticity is zero, and a field with another mean is not the vorticity of any flow.
 */
export function addVortex(field, n, x, y, strength, radius) {
  const across = periodicBell(n, x, radius);
  const along = periodicBell(n, y, radius);
  const sum = (bell) => bell.reduce((total, height) => total + height, 0);
  const mean = (sum(across) * sum(along)) / (n * n);
  for (let i = 0, k = 0; i < n; i++) {
    for (let j = 0; j < n; j++, k++) field[k] += strength * (across[i] * along[j] - mean);
  }
}

/**
 * Values (N, frames.length) of past frames, oldest first, from frames of N numbers each.
 */
export function framesAsValues(frames) {
  const channels = frames.length;
  const values = new Float32Array(channels * frames[0].length);
  frames.forEach((frame, channel) => {
    for (let i = 0; i < frame.length; i++) values[i * channels + channel] = frame[i];
  });
  return values;
}

/** One channel of values (N, channels). */
export function channelOf(values, channels, channel) {
  const field = new Float32Array(values.length / channels);
  for (let i = 0; i < field.length; i++) field[i] = values[i * channels + channel];
  return field;
}
