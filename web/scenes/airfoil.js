// Airfoil: bend a wing by the corners of a box around it, see the Mach number of the flow.

import { array } from "../backends/npz.js";
import { Scale } from "../draw/colours.js";
import { Handles } from "../draw/handles.js";
import { contour, gridLines, gridTriangles, nearest } from "../draw/raster.js";
import * as wing from "../problems/airfoil.js";
import { Comparison } from "../shell/comparison.js";
import { shortNumber } from "../shell/numbers.js";

const VIEW = [[-0.45, 1.45], [-0.6, 0.6]]; // of the mesh, which reaches forty chords
const HIGHEST = 1.5; // Mach number over wings like those of training
const FARTHEST = 1.6 * wing.REACH; // that a corner can be dragged
const PLAIN = new Array(8).fill(0);
const COARSER = [1, 2, 3, 4]; // every so many nodes of those in view, while something moves
const HINT = "Drag the rings up and down, or take one with space and move it with the arrows.";

export default {
  problem: "airfoil",
  title: "Airfoil",
  about:
    "Air streams past a wing at Mach 0.8. Bend the wing; the line is where the flow reaches Mach 1.",

  open(room) {
    const { spec, usual } = room.model;
    const around = spec.shape[0];
    if ((wing.AROUND - 1) % (around - 1)) {
      throw new Error(
        `The page makes meshes of ${wing.AROUND} nodes around a wing, or of every so many of ` +
          `them; this model takes ${around}.`,
      );
    }
    const coordinates = spec.inputs.length === 2;
    // What is known of the range is the mean and deviations of all nodes, and most are far away.
    const mach = new Scale("sequential", 0, Math.max(HIGHEST, usual?.targets?.[0]?.[1] ?? 0));

    const state = {
      moved: PLAIN, // how far the corners of the box are up
      whole: null, // the mesh of all nodes
      asked: null, // what the model is asked: all nodes
      shown: null, // the nodes of the last answer
      lines: false,
    };

    const compared = new Comparison(room, {
      quantity: "Mach number",
      label: "Mach number around the wing, which can be bent",
      box: VIEW,
      scale: () => mach,
      paint: draw,
      inputs: () => state.asked,
      method: "by finite volumes",
      showSample,
    });
    const { answered } = compared;

    const asker = room.asker({
      question({ moving, rows }) {
        const { asked, whole } = state;
        if (!moving || whole.count <= rows) return { inputs: asked, mesh: whole };
        const mesh = inView(whole, rows);
        const queries = rowsOf(asked.points, mesh.nodes);
        return { inputs: { ...asked, queries }, mesh, coarse: true };
      },
      show({ prediction }, { mesh }) {
        state.shown = mesh;
        compared.show(prediction.data);
      },
    });

    const corners = new Handles(answered, {
      places: () => Float32Array.from(cornersOf(state.moved).slice(2)),
      step: 0.01,
      redraw: () => compared.redraw(),
      drag(index, [, y]) {
        const k = index + 1; // the first stays where it is, as in training
        const up = y - (k < 4 ? -wing.BOX_Y : wing.BOX_Y);
        const within = Math.min(FARTHEST, Math.max(-FARTHEST, up));
        bend(state.moved.with(k, within), true);
      },
      drop: () => asker.changed(),
    });

    function bend(moved, moving = false) {
      const { points, values, mesh } = wing.inputs(moved, around, coordinates);
      const count = mesh.x.length;
      put(moved, drawnMesh(mesh), {
        points: array(points, [count, 2]),
        values: array(values, [count, spec.inputs.length]),
      });
      const bold = wing.beyond(moved).some(Boolean);
      answered.caption(bold ? "Bent farther than any wing in training." : HINT);
      asker.changed({ moving });
    }

    function put(moved, whole, asked) {
      compared.forget();
      Object.assign(state, { moved, whole, asked });
    }

    function draw(figure, values, scale, part) {
      const { points, triangles, wall } = part === "answer" ? state.shown : state.whole;
      const field = { points, triangles, values };
      const sonic = part === "error" ? [] : contour(field, 1);
      const body = wing.bent(state.moved).flat();
      const box = cornersOf(state.moved);
      const { around: n, across: m } = state.whole;
      const lines = state.lines && gridLines(state.whole.points, n, m);
      figure.show((paint) => {
        paint.mesh({ ...field, scale });
        if (lines) paint.segments({ points: lines, colour: "#ffffff", width: 0.3 });
        paint.segments({ points: sonic, colour: "#10141a", width: 3 });
        paint.segments({ points: sonic, colour: "#ffffff", width: 1.5 });
        // Where the mesh has few nodes it does not follow the wing: nothing is left between the two.
        const { panel } = paint.colours;
        paint.line({ points: wall, closed: true, fill: panel, colour: panel });
        paint.line({ points: body, closed: true, fill: panel });
        if (part !== "answer") return;
        paint.line({ points: box, closed: true, width: 1, colour: "#ffffff", dash: [4, 4] });
        paint.scatter({ points: box.slice(0, 2), radius: 3.5, colour: "#ffffff" });
        paint.handles({ points: box.slice(2), active: corners.active });
      }, scale);
      figure.reading(([x, y]) => {
        return inside(body, x, y) ? "" : shortNumber(values[nearest(points, x, y)]);
      });
    }

    // Controls.
    const shape = room.controls("Wing");
    shape.button({ label: "Random draw", main: true, press: () => bend(wing.draw()) });
    shape.button({ label: "Straight", press: () => bend(PLAIN) });
    shape.toggle({
      label: "Lines of the mesh",
      change(on) {
        state.lines = on;
        compared.redraw();
      },
    });

    compared.controls();

    function showSample({ points, values, queries, targets }) {
      const step = stepOf(points.shape[0]);
      const across = (wing.ACROSS - 1) / step + 1;
      const plain = coordinates ? wing.mesh(PLAIN, step).y : null;
      const moved = wing.displacementsOf((i) => {
        const node = i * across;
        return coordinates ? values.data[2 * node + 1] - plain[node] : values.data[node];
      }, step);
      const whole = drawnMesh(wing.mesh(moved, stepOf((queries ?? points).shape[0])));
      put(moved, whole, queries ? { points, values, queries } : { points, values });
      answered.caption("A wing that the model was not trained on.");
      asker.changed();
      return targets.data;
    }

    bend(wing.draw());
    return { state, compared };
  },
};

/** The corners of the box, round it: below from left to right, above from right to left. */
function cornersOf(moved) {
  return moved.flatMap((up, k) => {
    return k < 4 ? [wing.BOX_X[k], up - wing.BOX_Y] : [wing.BOX_X[7 - k], up + wing.BOX_Y];
  });
}

/** Of how many nodes of the full mesh one is kept, by how many there are. */
function stepOf(count) {
  for (let step = 1; step <= 50; step++) {
    if (((wing.AROUND - 1) / step + 1) * ((wing.ACROSS - 1) / step + 1) === count) return step;
  }
  throw new Error(`The page does not know the mesh of a wing with ${count} nodes.`);
}

/** A mesh as it is painted. */
function drawnMesh({ x, y, around, across }) {
  const points = new Float64Array(2 * x.length);
  for (let k = 0; k < x.length; k++) points.set([x[k], y[k]], 2 * k);
  const wall = wallOf(points, around, across);
  const triangles = gridTriangles(around, across);
  return { points, around, across, count: x.length, wall, triangles };
}

/** The nodes of a mesh that are in view, as many lines of them as make no more than so many rows;
 *  `nodes` says which of all they are. */
function inView({ points, around, across }, rows) {
  const [right, top] = [VIEW[0][1], VIEW[1][1]];
  const [first, last] = [0, 1].map((end) => {
    // One line beyond what is seen, where the wake leaves the view.
    const line = Array.from({ length: around }, (_, i) => (end ? around - 1 - i : i));
    const inner = line.findIndex((i) => points[2 * i * across] <= right);
    return line[Math.max(0, inner - 1)];
  });
  let out = 1;
  const beside = Math.round((around - 1) / 2 - ((around - 1) * 30) / (wing.AROUND - 1));
  while (out < across - 1 && points[2 * (beside * across + out) + 1] < 1.6 * top) out++;
  let found;
  for (const step of COARSER) {
    const lines = [every(first, last, step), every(0, out, step)];
    found = lines;
    if (lines[0].length * lines[1].length <= rows) break;
  }
  const nodes = found[0].flatMap((i) => found[1].map((j) => i * across + j));
  const kept = new Float64Array(nodes.flatMap((node) => [points[2 * node], points[2 * node + 1]]));
  const [wide, high] = found.map((line) => line.length);
  return { points: kept, nodes, wall: wallOf(kept, wide, high), triangles: gridTriangles(wide, high) };
}

/** The nodes of a mesh on the wing, which ends at 1, where the wake begins. */
function wallOf(points, around, across) {
  const found = [];
  for (let i = 0; i < around; i++) {
    const node = i * across;
    if (points[2 * node] < 1 + 1e-6) found.push(points[2 * node], points[2 * node + 1]);
  }
  return found;
}

/** Every so many of a row of numbers, and the last. */
function every(first, last, step) {
  const found = [];
  for (let k = first; k < last; k += step) found.push(k);
  return [...found, last];
}

/** Some rows of an array. */
function rowsOf({ data, shape: [, columns] }, rows) {
  const found = new Float32Array(rows.length * columns);
  rows.forEach((row, k) => found.set(data.subarray(row * columns, (row + 1) * columns), k * columns));
  return array(found, [rows.length, columns]);
}

/** Whether a place lies within a closed line x0 y0 x1 y1 … */
function inside(line, x, y) {
  let found = false;
  for (let k = 0, before = line.length - 2; k < line.length; before = k, k += 2) {
    const [ax, ay, bx, by] = [line[k], line[k + 1], line[before], line[before + 1]];
    if (ay > y !== by > y && x < ax + ((y - ay) / (by - ay)) * (bx - ax)) found = !found;
  }
  return found;
}
