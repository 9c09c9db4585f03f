// Shallow water on a globe: start from a test sample, put vortices and hills into it, follow it.

import { array } from "../backends/npz.js";
import { Scale } from "../draw/colours.js";
import { Globe, GLOBE_BOX, LinearGrid, placeName } from "../draw/globe.js";
import { channelOf } from "../problems/navier_stokes.js";
import { framesOf } from "../problems/rollout.js";
import {
  addHill,
  addVortex,
  gridPoints,
  HEIGHT_SCALE,
  VORTICITY_SCALE,
} from "../problems/shallow_water.js";
import { placeOf } from "../problems/sphere.js";
import { Rollout } from "../shell/rollout.js";
import { shortNumber } from "../shell/numbers.js";

/** What can be shown: its channel, its unit, and how many of these one of the data is. */
const SHOWN = {
  vorticity: { channel: 1, unit: "/day", factor: 86400 / VORTICITY_SCALE },
  height: { channel: 0, unit: "m", factor: 1 / HEIGHT_SCALE },
};
const DEGREE = Math.PI / 180;

export default {
  problem: "shallow_water",
  title: "Shallow water",
  about:
    "Winds on a turning planet that is covered by one layer of air. Turn it, put vortices and hills into it, and watch the next hours.",

  async open(room) {
    const { spec, usual, samples, settings } = room.model;
    const steps = Math.min(spec.steps, room.backend.mostSteps);
    const scales = {};
    for (const [name, { channel, unit, factor }] of Object.entries(SHOWN)) {
      const [low, high] = usual?.targets?.[channel] ?? [-1, 1];
      scales[name] = Scale.around(factor * low, factor * high, unit);
    }

    let pointer = null;
    const state = {
      fields: null, // height and vorticity at the start, in the units of the data
      painted: null, // the same with what is held
      points: null, // unit vectors
      grid: null,
      shown: "vorticity",
      tool: "turn",
      sign: 1,
      radius: 8 * DEGREE,
      rollout: null,
      globe: null,
    };

    const figure = (options) => room.figure({ box: GLOBE_BOX, ...options });
    const start = figure({ title: "Start", label: "the start, to turn and to paint on" });
    const rollout = new Rollout(room, {
      figure,
      quantity: "wind and height on the globe",
      steps,
      time: (index) => `${index + 1} h`,
      frames: ({ data, shape }) => {
        const { channel, factor } = SHOWN[state.shown];
        return framesOf(data, shape, channel).map((frame) => frame.map((x) => factor * x));
      },
      scale: () => scales[state.shown],
      paint: show,
      inputs: () => ({ ...inputs(), steps }),
      method: "by spherical harmonics",
      showSample,
    });
    state.rollout = rollout;

    const asker = room.asker({
      // While something is dragged only as far as is seen.
      question({ moving }) {
        const far = moving ? Math.min(steps, rollout.frame + 1) : steps;
        return { inputs: { ...inputs(), steps: far }, coarse: far < steps };
      },
      show: ({ prediction }) => rollout.show(prediction),
    });

    function inputs() {
      const { height, vorticity } = state.painted ?? state.fields;
      const places = height.length;
      const values = new Float32Array(2 * places);
      for (let k = 0; k < places; k++) values.set([height[k], vorticity[k]], 2 * k);
      return { points: array(state.points, [places, 3]), values: array(values, [places, 2]) };
    }

    function changed(moving = false) {
      rollout.forget();
      drawStart();
      rollout.redraw();
      asker.changed({ moving });
    }

    function show(figure, values, scale) {
      const ring = figure === start && pointer;
      figure.show((paint) => {
        state.globe.paint(paint, { values, scale });
        if (ring) {
          const points = state.globe.circle(ring, state.radius);
          paint.line({ points, width: 3, colour: paint.colours.paper });
          paint.line({ points, width: 1.25 });
        }
      }, scale);
      figure.reading((place) => {
        const vector = state.globe.view.unproject(...place);
        if (!vector) return "";
        const value = `${shortNumber(state.grid.read(values, ...placeOf(vector)))} ${scale.unit}`;
        return `${placeName(...placeOf(vector))}: ${value}`;
      });
    }

    function drawStart() {
      if (!state.fields) return;
      const { factor } = SHOWN[state.shown];
      const field = (state.painted ?? state.fields)[state.shown];
      show(start, Float32Array.from(field, (x) => factor * x), scales[state.shown]);
    }

    function redraw() {
      drawStart();
      rollout.redraw();
    }

    // What is painted is put where one presses, dragged along, and stays where it is let go.
    state.globe = new Globe(null, redraw);
    state.globe.turns(start, {
      brush: () => state.tool !== "turn" && state.fields !== null,
      stroke: hold,
      done() {
        state.fields = state.painted ?? state.fields;
        state.painted = null;
        asker.changed();
      },
      hover(place) {
        pointer = place;
        drawStart();
      },
    });
    for (const other of [rollout.answered, rollout.solved, rollout.wrong]) state.globe.turns(other);

    function hold(vector) {
      rollout.player.pause();
      const { fields, points, radius, sign } = state;
      const held = {
        height: Float32Array.from(fields.height),
        vorticity: Float32Array.from(fields.vorticity),
      };
      const [add, name] = state.tool === "hill" ? [addHill, "height"] : [addVortex, "vorticity"];
      const much = (sign * 0.7 * scales[name].high) / SHOWN[name].factor;
      add(held, points, placeOf(vector), much, radius);
      state.painted = held;
      changed(true);
    }

    // Controls.
    const looking = room.controls("Shown");
    looking.choice({
      label: "Shown",
      options: [
        ["vorticity", "Vorticity"],
        ["height", "Height"],
      ],
      value: state.shown,
      change(name) {
        state.shown = name;
        drawStart();
        rollout.refresh();
      },
    });

    const painting = room.controls("Pointer");
    painting.choice({
      label: "Pointer",
      options: [
        ["turn", "Turn"],
        ["vortex", "Vortex"],
        ["hill", "Hill"],
      ],
      value: state.tool,
      change(tool) {
        state.tool = tool;
        pointer = null;
        hint();
        drawStart();
      },
    });
    painting.choice({
      label: "Sense",
      options: [
        ["1", "↺ or hill"],
        ["-1", "↻ or hollow"],
      ],
      value: "1",
      change: (sign) => (state.sign = Number(sign)),
    });
    painting.slider({
      label: "Width",
      min: 3,
      max: 20,
      step: 1,
      value: Math.round(state.radius / DEGREE),
      show: (degrees) => `${2 * degrees}°`,
      input: (degrees) => (state.radius = degrees * DEGREE),
    });
    painting.button({
      label: "Calm",
      press() {
        if (!state.fields) return;
        const { length } = state.fields.height;
        setFields(new Float32Array(length), new Float32Array(length));
        changed();
      },
    });
    rollout.controls(
      room.backend.solves &&
        "The model is not shown the divergence of the wind, so the solver starts from none. Its solution has gravity waves that the data do not have.",
    );

    function hint() {
      const what = { turn: "Drag to turn.", vortex: "Press and drag to put a vortex in.", hill: "Press and drag to put a hill in." };
      start.caption(what[state.tool]);
    }

    function setFields(height, vorticity) {
      Object.assign(state, { fields: { height, vorticity }, painted: null });
    }

    function setPoints(points) {
      const rows = Math.round(Math.sqrt(points.length / 6));
      const latitudes = Array.from({ length: rows }, (_, i) => Math.asin(points[6 * rows * i + 2]));
      state.points = points;
      state.grid = new LinearGrid(latitudes, 2 * rows);
      state.globe.grid = state.grid;
    }

    function showSample({ points, values }) {
      setPoints(points.data);
      setFields(channelOf(values.data, 2, 0), channelOf(values.data, 2, 1));
      changed();
    }

    hint();
    if (samples) rollout.startFrom(await room.backend.sample(0), "test sample 1");
    else {
      const rows = spec.shape[0];
      setPoints(gridPoints(rows, settings?.size ?? rows));
      const places = 2 * rows * rows;
      setFields(new Float32Array(places), new Float32Array(places));
      hold([0.6, 0.33, 0.73]);
      setFields(state.painted.height, state.painted.vorticity);
      changed();
    }
    rollout.player.begin();
    return { state };
  },
};
