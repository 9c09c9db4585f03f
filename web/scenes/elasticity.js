// Elasticity: pull the edge of a cavity in a sheet of rubber, see the stress around it.

import { array } from "../backends/npz.js";
import { Scale } from "../draw/colours.js";
import { Handles } from "../draw/handles.js";
import { gridTriangles, nearest } from "../draw/raster.js";
import * as cavity from "../problems/elasticity.js";
import { Comparison } from "../shell/comparison.js";
import { shortNumber } from "../shell/numbers.js";

const GRIPS = 12; // places of the edge that can be taken
const EDGE = 144; // corners of the edge as it is drawn
const LINES = 3 * cavity.SECTORS; // of places from the edge outward
const ACROSS = 3 * cavity.LAYERS + 2;
const CORNERS = [[1, 1], [0, 1], [0, 0], [1, 0]]; // in the order in which the lines meet them
const TRIANGLES = [...gridTriangles(LINES + 1, ACROSS), ...cornerTriangles()];
const ROUND = new Array(2 * cavity.MODES).fill(0);

export default {
  problem: "elasticity",
  title: "Elasticity",
  about:
    "A sheet of rubber, held at its bottom and pulled at its top. Drag the edge of its hole; the stress follows.",

  open(room) {
    const { spec, usual } = room.model;
    const [low, high] = usual?.targets?.[0] ?? [0, 600];
    const stress = new Scale("sequential", Math.max(0, low), high, spec.units?.[0]);
    const polar = spec.query_dimension === 4;
    const form = spec.inputs.length === 2 ? "mesh" : spec.dimension === 1 ? "radii" : "points";

    const state = {
      theta: ROUND, // ten numbers that say what the cavity looks like
      places: null, // of the stresses
      mesh: null, // to paint them on
      asked: null, // what the model is asked
      dots: false,
    };

    const compared = new Comparison(room, {
      quantity: "Stress",
      label: "stress around the hole, whose edge can be dragged",
      box: [[-0.02, 1.02], [-0.02, 1.02]],
      scale: () => stress,
      paint: draw,
      inputs: () => state.asked,
      method: "by finite elements",
      showSample,
    });
    const { answered } = compared;
    const asker = room.asker({
      question: () => ({ inputs: state.asked }),
      show: ({ prediction }) => compared.show(prediction.data),
    });

    const grips = new Handles(answered, {
      places: () => Float32Array.from(onEdge(GRIPS)),
      step: 0.02,
      redraw: () => compared.redraw(),
      drag(index, [x, y]) {
        const angle = (2 * Math.PI * index) / GRIPS;
        const along =
          (x - cavity.CENTRE) * Math.cos(angle) + (y - cavity.CENTRE) * Math.sin(angle);
        reshape(cavity.pulled(state.theta, angle, along), true);
      },
      drop: () => asker.changed(),
    });

    /** Places of the edge at so many angles, x0 y0 x1 y1 … */
    function onEdge(count) {
      return Array.from({ length: count }, (_, k) => {
        const angle = (2 * Math.PI * k) / count;
        const radius = cavity.radius(state.theta, angle);
        return [
          cavity.CENTRE + radius * Math.cos(angle),
          cavity.CENTRE + radius * Math.sin(angle),
        ];
      }).flat();
    }

    function reshape(theta, moving = false) {
      const { points, values, queries, places } = cavity.inputs(theta, form, polar);
      const channels = spec.inputs.length;
      put(theta, places, {
        points: array(points, [points.length / spec.dimension, spec.dimension]),
        values: array(values, [values.length / channels, channels]),
        queries: array(queries, [cavity.POINTS, spec.query_dimension]),
      });
      const rare = cavity.rarity(theta) > cavity.RARE;
      answered.caption(
        rare
          ? "Of a hundred holes in training, less than one is as unusual as this."
          : "Drag the rings, or take one with space and move it with the arrows.",
      );
      asker.changed({ moving });
    }

    function put(theta, places, asked) {
      compared.forget();
      Object.assign(state, { theta, places, asked, mesh: meshOf(theta) });
    }

    function draw(figure, values, scale, part) {
      const { mesh, places } = state;
      figure.show((paint) => {
        if (mesh) {
          const painted = Float32Array.from(mesh.from, (point) => values[point]);
          paint.mesh({ points: mesh.points, triangles: TRIANGLES, values: painted, scale });
        } else paint.scatter({ points: places, values, scale, radius: 4 });
        if (state.dots) paint.scatter({ points: places, radius: 1, colour: paint.colours.ink });
        const square = CORNERS.flat();
        paint.line({ points: square, closed: true, width: 1, colour: paint.colours.faint });
        paint.line({ points: onEdge(EDGE), closed: true });
        if (part === "answer") paint.handles({ points: onEdge(GRIPS), active: grips.active });
      }, scale);
      figure.reading(([x, y]) => {
        const outside = Math.max(Math.abs(x - 0.5), Math.abs(y - 0.5)) > 0.5;
        const away = Math.hypot(x - cavity.CENTRE, y - cavity.CENTRE);
        const angle = Math.atan2(y - cavity.CENTRE, x - cavity.CENTRE);
        if (outside || away < cavity.radius(state.theta, angle)) return "";
        return shortNumber(values[nearest(places, x, y)]);
      });
    }

    // Controls.
    const hole = room.controls("Hole");
    hole.button({ label: "Random draw", main: true, press: () => reshape(cavity.draw()) });
    hole.button({ label: "Round", press: () => reshape(ROUND) });
    hole.toggle({
      label: `The ${cavity.POINTS} places that are asked`,
      change(on) {
        state.dots = on;
        compared.redraw();
      },
    });

    compared.controls();

    function showSample({ points, values, queries, targets }) {
      const places = cartesian(queries);
      const theta = cavity.thetaOf(radiiOf(points, values, places));
      put(theta, places, { points, values, queries });
      const own = cavity.gaussPoints(theta);
      // Published files may number the places in another order than the mesh that is painted on.
      const apart = places.reduce((most, x, k) => Math.max(most, Math.abs(x - own[k])), 0);
      if (places.length !== own.length || apart > 0.03) state.mesh = null;
      answered.caption("A hole that the model was not trained on.");
      asker.changed();
      return targets.data;
    }

    /** x and y of queries, which may have angles and distances behind them. */
    function cartesian({ data, shape: [rows, columns] }) {
      const places = new Float32Array(2 * rows);
      for (let k = 0; k < rows; k++) {
        places.set(data.subarray(columns * k, columns * k + 2), 2 * k);
      }
      return places;
    }

    /** The radii at the angles that say what a cavity looks like, from what a sample has. */
    function radiiOf(points, values, places) {
      if (form === "radii") return values.data;
      // The first places outward are next to the edge, and radii change little between neighbours.
      const known = [];
      for (let k = 0; k < places.length / 2; k++) {
        const [x, y] = [places[2 * k] - cavity.CENTRE, places[2 * k + 1] - cavity.CENTRE];
        const radius = form === "points" ? values.data[k] : Math.hypot(x, y);
        known.push([Math.atan2(y, x), radius]);
      }
      return Array.from({ length: cavity.GAPS }, (_, k) => {
        const angle = (2 * Math.PI * k) / cavity.GAPS;
        return form === "points" ? between(known, angle) : innermost(known, angle);
      });
    }

    reshape(cavity.draw());
    return { state, compared };
  },
};

/** The painted mesh of a cavity with the corners of the square, to which no line leads. */
function meshOf(theta) {
  const { x, y, from } = cavity.paintedMesh(theta);
  const points = [];
  for (let k = 0; k < x.length; k++) points.push(x[k], y[k]);
  const beside = CORNERS.map((_, k) => from[outerNode(((k + 1) * LINES) / 4)]);
  return { points: [...points, ...CORNERS.flat()], from: [...from, ...beside] };
}

function outerNode(line) {
  return line * ACROSS + ACROSS - 1;
}

/** A triangle for each corner, with the outer ends of the lines before and behind it. */
function cornerTriangles() {
  return CORNERS.flatMap((_, k) => {
    const line = ((k + 1) * LINES) / 4;
    return [outerNode(line - 1), (LINES + 1) * ACROSS + k, outerNode(line)];
  });
}

/** The angle from one direction to another, within half a turn. */
function turn(from, to) {
  const full = 2 * Math.PI;
  return ((((to - from + Math.PI) % full) + full) % full) - Math.PI;
}

/** A radius at an angle, linear between the nearest angles on both sides. */
function between(known, angle) {
  let below = [-Infinity, 0];
  let above = [Infinity, 0];
  for (const [at, radius] of known) {
    const far = turn(angle, at);
    if (far <= 0 && far > below[0]) below = [far, radius];
    if (far >= 0 && far < above[0]) above = [far, radius];
  }
  const gap = above[0] - below[0];
  return gap ? below[1] + ((above[1] - below[1]) * -below[0]) / gap : below[1];
}

/** The smallest distance of the places around an angle. */
function innermost(known, angle) {
  const near = known.filter(([at]) => Math.abs(turn(angle, at)) < 0.1);
  return Math.min(...near.map(([, radius]) => radius));
}
