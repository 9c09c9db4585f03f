// Fields on a sphere that can be turned: pictures of it, and what pointers and keys do to it.

import { View } from "../problems/sphere.js";

export const GLOBE_BOX = [[-1.02, 1.02], [-1.02, 1.02]];

const MOST = 400; // pixels across a picture; a larger figure stretches it
const TURN = Math.PI / 24; // that an arrow key turns
const GRATICULE = "rgb(125 130 135 / 0.45)";
const DEGREE = Math.PI / 180;

/** Places on lines of latitude from north to south, with meridians eastward from 0: a pixel sees its
 *  four neighbours, linear between them, across the poles as well. Angles in radians. */
export class LinearGrid {
  neighbours = 4;

  constructor(latitudes, columns) {
    const [first, last] = [latitudes[0], latitudes.at(-1)];
    this.lines = [Math.PI - first, ...latitudes, -Math.PI - last];
    this.rows = latitudes.length;
    this.columns = columns;
    // Lines lie almost evenly: where to begin to look.
    this.step = (first - last) / (this.rows - 1);
  }

  /** What is seen of some values at a place. */
  read(values, latitude, longitude) {
    const [cells, shares] = [new Int32Array(4), new Float32Array(4)];
    this.find(latitude, longitude, cells, shares, 0);
    return shares.reduce((sum, share, k) => sum + share * values[cells[k]], 0);
  }

  /** Write which values a place sees, and their shares. */
  find(latitude, longitude, cells, shares, at) {
    const { lines, rows, columns } = this;
    let row = 1 + Math.floor((lines[1] - latitude) / this.step);
    row = Math.min(rows, Math.max(0, row));
    while (row > 0 && lines[row] < latitude) row--;
    while (row < rows && lines[row + 1] > latitude) row++;
    const down = (lines[row] - latitude) / (lines[row] - lines[row + 1]);
    const place = (longitude / (2 * Math.PI)) * columns;
    const west = Math.floor(place);
    const right = place - west;
    for (let k = 0; k < 4; k++) {
      const line = row + (k >> 1);
      const across = line === 0 || line === rows + 1 ? columns / 2 : 0; // beyond a pole
      const column = (west + (k & 1) + across + columns) % columns;
      cells[at + k] = Math.min(rows - 1, Math.max(0, line - 1)) * columns + column;
      shares[at + k] = (k >> 1 ? down : 1 - down) * (k & 1 ? right : 1 - right);
    }
  }
}

/** Places in some cells of a regular grid, by their degrees north and east: a pixel sees the place
 *  whose cell it lies in, or none. */
export class Cells {
  neighbours = 1;

  constructor(north, east) {
    const lines = (all) => {
      const found = [...new Set(all)].sort((a, b) => a - b);
      return { first: found[0], step: (found.at(-1) - found[0]) / (found.length - 1), count: found.length };
    };
    this.north = lines(north);
    this.east = lines(east);
    this.rows = new Int32Array(this.north.count * this.east.count).fill(-1);
    north.forEach((latitude, k) => (this.rows[this.#cell(latitude, east[k])] = k));
  }

  #cell(latitude, longitude) {
    const row = Math.round((latitude - this.north.first) / this.north.step);
    if (row < 0 || row >= this.north.count) return -1;
    const column = Math.round((longitude - this.east.first) / this.east.step);
    return row * this.east.count + ((column + this.east.count) % this.east.count);
  }

  /** The index of the place whose cell a place lies in; -1 for none. Angles in radians. */
  at(latitude, longitude) {
    const cell = this.#cell(latitude / DEGREE, longitude / DEGREE);
    return cell < 0 ? -1 : this.rows[cell];
  }

  find(latitude, longitude, cells, shares, at) {
    cells[at] = this.at(latitude, longitude);
    shares[at] = 1;
  }
}

/** A sphere that some figures show, all from the same side. `redraw()` paints them anew. */
export class Globe {
  view = new View(0.6, 0.5);
  #tables = new Map(); // what the pixels of a picture see, by how many there are across
  #grid;

  constructor(grid, redraw) {
    this.#grid = grid;
    this.redraw = redraw;
  }

  get grid() {
    return this.#grid;
  }

  set grid(grid) {
    this.#grid = grid;
    this.#tables.clear();
  }

  /** Look from another side. */
  look(view) {
    if (!this.#grid) return; // nothing is seen yet
    this.view = view;
    this.#tables.clear();
    this.redraw();
  }

  /** Paint values in a figure. Where there is no place it shows `land`, and where there is no
   *  number `unknown`; both are colours as CSS takes them. */
  paint(paint, { values, scale, land = "transparent", unknown = land }) {
    const size = Math.min(MOST, Math.max(32, Math.round(paint.width * paint.ratio)));
    const { cells, shares } = this.#table(size);
    const each = this.#grid.neighbours;
    const pixels = new Uint8ClampedArray(4 * size * size);
    const colours = scale.table;
    const beside = rgb(unknown);
    for (let k = 0; k < size * size; k++) {
      let value = 0;
      if (each === 1) {
        if (cells[k] < 0) continue;
        value = values[cells[k]];
      } else {
        for (let n = 4 * k; n < 4 * k + 4; n++) value += shares[n] * values[cells[n]];
      }
      const to = 4 * k;
      if (value !== value) pixels.set(beside, to);
      else {
        const from = 3 * scale.index(value);
        pixels[to] = colours[from];
        pixels[to + 1] = colours[from + 1];
        pixels[to + 2] = colours[from + 2];
        pixels[to + 3] = 255;
      }
    }
    paint.disc({ pixels, size, ground: land });
    for (const points of this.#graticule()) paint.line({ points, width: 1, colour: GRATICULE });
    const edge = Array.from({ length: 181 }, (_, k) => (k * Math.PI) / 90);
    const points = edge.flatMap((angle) => [Math.cos(angle), Math.sin(angle)]);
    paint.line({ points, width: 1.25, colour: GRATICULE });
  }

  /** Where places on the near side are seen: unit vectors x0 y0 z0 … as x0 y0 x1 y1 … */
  seen(vectors) {
    const found = [];
    for (let k = 0; k < vectors.length; k += 3) {
      const [x, y, z] = this.view.project([vectors[k], vectors[k + 1], vectors[k + 2]]);
      if (z > 0.05) found.push(x, y);
    }
    return found;
  }

  /** A circle on the sphere around a place of a figure, as a line to paint; empty off the sphere. */
  circle([x, y], radius) {
    const centre = this.view.unproject(x, y);
    if (!centre) return [];
    const { right, up } = new View(Math.asin(centre[2]), Math.atan2(centre[1], centre[0]));
    const found = [];
    for (let k = 0; k <= 64; k++) {
      const [c, s] = [Math.cos((k * Math.PI) / 32), Math.sin((k * Math.PI) / 32)];
      const vector = centre.map(
        (n, axis) => Math.cos(radius) * n + Math.sin(radius) * (c * right[axis] + s * up[axis]),
      );
      const [across, high, near] = this.view.project(vector);
      if (near > 0) found.push(across, high);
    }
    return found;
  }

  /** Let a figure be turned. `stroke(vector, first)`, if given, may take a pointer at a place of the
   *  sphere for something else: then it answers true, and `done()` is called when it is let go.
   *  `brush()` says whether it would. A finger turns only figures that have a stroke, and moves the
   *  page elsewhere. */
  turns(figure, { brush = () => false, stroke = null, done = () => {}, hover = () => {} } = {}) {
    let from = null;
    let painting = false;
    figure.pointing({
      step: 0.04,
      scrolls: true,
      down: ([x, y], event) => {
        const vector = this.view.unproject(x, y);
        if (!vector || (!stroke && event?.pointerType === "touch")) return false;
        painting = brush();
        if (painting) stroke(vector, true);
        else from = { place: [x, y], view: this.view };
        return true;
      },
      move: ([x, y]) => {
        if (!painting) return this.#drag(from, [x, y]);
        const vector = this.view.unproject(x, y);
        hover(vector ? [x, y] : null);
        if (vector) stroke(vector, false);
        return undefined;
      },
      up: () => {
        if (painting) done();
        painting = false;
        from = null;
      },
      hover: (place) => {
        const on = place && place[0] ** 2 + place[1] ** 2 < 1;
        figure.canvas.style.cursor = !on ? "default" : brush() ? "crosshair" : "grab";
        hover(on && brush() ? place : null);
      },
      arrow: ([right, up]) => {
        if (brush()) return false;
        this.look(this.view.turned(-TURN * right, -TURN * up));
        return true;
      },
    });
  }

  #drag({ place, view }, [x, y]) {
    this.look(view.turned(x - place[0], y - place[1]));
  }

  #table(size) {
    if (!this.#tables.has(size)) this.#tables.set(size, this.#seenBy(size));
    return this.#tables.get(size);
  }

  /** Which values the pixels of a picture of this size see. */
  #seenBy(size) {
    const each = this.#grid.neighbours;
    const cells = new Int32Array(each * size * size);
    const shares = new Float32Array(each * size * size);
    const { right, up, toEye } = this.view;
    for (let i = 0, at = 0; i < size; i++) {
      for (let j = 0; j < size; j++, at += each) {
        let x = (2 * (j + 0.5)) / size - 1;
        let y = 1 - (2 * (i + 0.5)) / size;
        const far = Math.sqrt(x * x + y * y);
        if (far > 0.9999) {
          x *= 0.9999 / far; // the edge is cut round
          y *= 0.9999 / far;
        }
        const z = Math.sqrt(1 - x * x - y * y);
        const longitude = Math.atan2(
          x * right[1] + y * up[1] + z * toEye[1],
          x * right[0] + y * up[0] + z * toEye[0],
        );
        const height = x * right[2] + y * up[2] + z * toEye[2];
        const latitude = Math.asin(Math.max(-1, Math.min(1, height)));
        const east = longitude < 0 ? longitude + 2 * Math.PI : longitude;
        this.#grid.find(latitude, east, cells, shares, at);
      }
    }
    return { cells, shares };
  }

  /** Lines of latitude and longitude, 30 degrees apart, as far as they are seen. */
  *#graticule() {
    for (let k = -2; k <= 2; k++) yield* this.#seenLine((t) => [(k * Math.PI) / 6, t]);
    for (let k = 0; k < 6; k++) yield* this.#seenLine((t) => polar(t, (k * Math.PI) / 6));
  }

  *#seenLine(place) {
    let line = [];
    for (let k = 0; k <= 90; k++) {
      const [latitude, longitude] = place((k / 45) * Math.PI);
      const ring = Math.cos(latitude);
      const vector = [ring * Math.cos(longitude), ring * Math.sin(longitude), Math.sin(latitude)];
      const [x, y, z] = this.view.project(vector);
      if (z >= 0) line.push(x, y);
      else if (line.length) {
        yield line;
        line = [];
      }
    }
    if (line.length) yield line;
  }
}

/** A place on the full circle of two meridians. */
function polar(t, longitude) {
  const north = t <= Math.PI ? t - Math.PI / 2 : 1.5 * Math.PI - t;
  return [north, t <= Math.PI ? longitude : longitude + Math.PI];
}

const known = new Map();

/** Red, green, blue and how dense a colour is, from CSS. */
function rgb(colour) {
  if (!known.has(colour)) {
    const context = document.createElement("canvas").getContext("2d");
    context.fillStyle = colour;
    context.fillRect(0, 0, 1, 1);
    known.set(colour, context.getImageData(0, 0, 1, 1).data);
  }
  return known.get(colour);
}

/** A place as people say it: 52° N 13° E. Angles in radians. */
export function placeName(latitude, longitude) {
  const north = Math.round(latitude / DEGREE);
  const east = Math.round(((longitude / DEGREE + 540) % 360) - 180);
  return `${Math.abs(north)}° ${north < 0 ? "S" : "N"} ${Math.abs(east)}° ${east < 0 ? "W" : "E"}`;
}
