/** The sphere: Gauss's lines of latitude, unit vectors, an orthographic view. All in radians. */

/** The latitudes of n Gauss lines from north to south: zeros of the Legendre polynomial P_n. */
export function gaussLatitudes(n) {
  const latitudes = new Float64Array(n);
  for (let i = 0; i < n; i++) {
    // The angle from the pole, improved by Newton's steps: P_n(cos θ) = 0.
    let theta = (Math.PI * (i + 0.75)) / (n + 0.5);
    for (let turn = 0; turn < 20; turn++) {
      const x = Math.cos(theta);
      let before = 1;
      let now = x;
      for (let k = 2; k <= n; k++) {
        [before, now] = [now, ((2 * k - 1) * x * now - (k - 1) * before) / k];
      }
      const slope = (n * (before - x * now)) / Math.sin(theta) ** 2; // dP/dx
      const change = now / (slope * Math.sin(theta));
      theta += change;
      if (Math.abs(change) < 1e-15) break;
    }
    latitudes[i] = Math.PI / 2 - theta;
  }
  return latitudes;
}

/** Longitudes of `columns` meridians, eastward from 0. */
export function meridians(columns) {
  return Float64Array.from({ length: columns }, (_, j) => (2 * Math.PI * j) / columns);
}

/** The unit vector of a place. */
export function unitVector(latitude, longitude) {
  const ring = Math.cos(latitude);
  return [ring * Math.cos(longitude), ring * Math.sin(longitude), Math.sin(latitude)];
}

/** Latitude and longitude of a unit vector; longitudes in [0, 2π). */
export function placeOf([x, y, z]) {
  const longitude = Math.atan2(y, x);
  return [Math.asin(Math.max(-1, Math.min(1, z))), longitude < 0 ? longitude + 2 * Math.PI : longitude];
}

/** Unit vectors (rows * columns, 3) of a grid of latitudes and longitudes, row by row. */
export function gridVectors(latitudes, longitudes) {
  const points = new Float32Array(3 * latitudes.length * longitudes.length);
  let k = 0;
  for (const latitude of latitudes) {
    for (const longitude of longitudes) {
      points.set(unitVector(latitude, longitude), k);
      k += 3;
    }
  }
  return points;
}

/**
 * The sphere as seen from far above a place: x to the right, y upward, z to the eye.
 *
 * `latitude` and `longitude` are those of the middle of the disc.
 */
export class View {
  constructor(latitude, longitude) {
    this.latitude = Math.max(-Math.PI / 2, Math.min(Math.PI / 2, latitude));
    this.longitude = longitude;
    const [s, c] = [Math.sin(this.latitude), Math.cos(this.latitude)];
    const [sl, cl] = [Math.sin(longitude), Math.cos(longitude)];
    this.right = [-sl, cl, 0];
    this.up = [-s * cl, -s * sl, c];
    this.toEye = [c * cl, c * sl, s];
  }

  /** Where a unit vector is seen: [x, y, z], in front where z is positive. */
  project(vector) {
    const dot = (axis) => axis[0] * vector[0] + axis[1] * vector[1] + axis[2] * vector[2];
    return [dot(this.right), dot(this.up), dot(this.toEye)];
  }

  /** The unit vector that is seen at (x, y) of the unit disc; null outside of it. */
  unproject(x, y) {
    const square = x * x + y * y;
    if (square > 1) return null;
    const z = Math.sqrt(1 - square);
    return [0, 1, 2].map((k) => x * this.right[k] + y * this.up[k] + z * this.toEye[k]);
  }

  /** The view after a drag by parts of the radius: the sphere follows the pointer. */
  turned(right, up) {
    return new View(this.latitude - up, this.longitude - right);
  }
}
