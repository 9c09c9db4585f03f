/**
 * Shallow water on the sphere: its grid, and the vortices and hills that can be painted on a state.
 *
 * Fields lie on lines from north to south and meridians eastward from 0, row by row, as in
 * `ipot.problems.shallow_water.GaussGrid`. Angles are in radians.
 */

import { gaussLatitudes, gridVectors, meridians, unitVector } from "./sphere.js";

export const RADIUS = 6.37122e6;
export const OMEGA = 7.292e-5;
export const GRAVITY = 9.80616;
const HOUR = 3600;
/** What the shallow-water data multiply a height in metres and a vorticity per second by. */
export const HEIGHT_SCALE = 3000 / RADIUS;
export const VORTICITY_SCALE = 2 * HOUR;

/** Every k-th of the lines in the north and their mirror images, so that `rows` are left. */
export function thinnedLatitudes(solved, rows) {
  const step = solved / rows;
  if (!Number.isInteger(step)) throw new Error(`${rows} lines are no thinning of ${solved}`);
  const whole = gaussLatitudes(solved);
  const north = [];
  for (let i = 0; i < solved / 2; i += step) north.push(i);
  const kept = [...north, ...north.map((i) => solved - 1 - i).reverse()];
  return Float64Array.from(kept, (i) => whole[i]);
}

/** Unit vectors (N, 3) of the grid with this many rows, of a flow that was solved on `solved`. */
export function gridPoints(rows, solved) {
  return gridVectors(thinnedLatitudes(solved, rows), meridians(2 * rows));
}

/**
 * Add a vortex at a place to height and vorticity, in place, in the units of the data.
 *
 * The stream function is a bell, ψ = -ζ a² / 2 exp(-r² / 2a²), so that the vorticity is ζ at the
 * centre and has a ring of the other sign around it: its integral vanishes, as it must on a sphere.
 * The height f ψ / g balances the wind (f at the centre of the vortex), as in flows like those of
 * the training data; near the equator, where f vanishes, it is the vorticity alone.
 * `vorticity` is ζ in units of the data, `radius` is a in radians.
 */
export function addVortex(fields, points, place, vorticity, radius) {
  const centre = unitVector(...place);
  const zeta = vorticity / VORTICITY_SCALE;
  const stream = (-zeta * (radius * RADIUS) ** 2) / 2;
  const coriolis = 2 * OMEGA * Math.sin(place[0]);
  const peak = (coriolis * stream * HEIGHT_SCALE) / GRAVITY;
  for (let i = 0; i < points.length / 3; i++) {
    const square = distanceSquared(points, i, centre) / radius ** 2;
    const bell = Math.exp(-square / 2);
    fields.height[i] += peak * bell;
    fields.vorticity[i] += vorticity * (1 - square / 2) * bell;
  }
}

/** Add a hill of water (or a hollow) at a place, in place; `height` in units of the data. */
export function addHill(fields, points, place, height, radius) {
  const centre = unitVector(...place);
  for (let i = 0; i < points.length / 3; i++) {
    fields.height[i] += height * Math.exp(-distanceSquared(points, i, centre) / radius ** 2 / 2);
  }
}

/** The square of the chord from point i to a place: near the arc where both are close. */
function distanceSquared(points, i, [x, y, z]) {
  return (points[3 * i] - x) ** 2 + (points[3 * i + 1] - y) ** 2 + (points[3 * i + 2] - z) ** 2;
}
