// Navier-Stokes: start from a test sample or a painted vortex, and follow the vorticity.

import { array } from "../backends/npz.js";
import { Scale } from "../draw/colours.js";
import { following } from "../problems/flow.js";
import { addVortex, beyond, channelOf, framesAsValues, torusPoints } from "../problems/navier_stokes.js";
import { framesOf } from "../problems/rollout.js";
import { Rollout } from "../shell/rollout.js";
import { shortNumber } from "../shell/numbers.js";

export default {
  problem: "navier_stokes",
  title: "Navier-Stokes",
  about:
    "A stirred fluid on a square without edges, seen by its vorticity. Put vortices into it and watch what becomes of them.",

  async open(room) {
    const { spec, usual, samples, settings } = room.model;
    const history = spec.inputs.length;
    const steps = Math.min(spec.steps, room.backend.mostSteps);
    const [low, high] = usual?.targets?.[0] ?? [-3, 3];
    const vorticity = Scale.around(low, high);

    let pointer = null;
    const state = {
      frames: [], // of the past, oldest first
      painted: null, // the first of them with the vortex that is held
      side: spec.shape[0],
      sign: 1,
      radius: 0.06,
      rollout: null,
    };

    const start = room.figure({ title: "Start", label: "vorticity at the start, to put vortices in" });
    const rollout = new Rollout(room, {
      figure: (options) => room.figure(options),
      quantity: "vorticity",
      steps,
      time: (index) => `t = ${index + 1}`,
      frames: ({ data, shape }) => framesOf(data, shape),
      scale: () => vorticity,
      paint: show,
      inputs: () => ({ ...inputs(), steps }),
      method: "by Fourier's method",
      showSample,
    });
    state.rollout = rollout;

    const asker = room.asker({
      question: () => ({ inputs: { ...inputs(), steps } }),
      show: ({ prediction }) => rollout.show(prediction),
    });

    function inputs() {
      const places = state.side ** 2;
      return {
        points: array(torusPoints(state.side), [places, 2]),
        values: array(framesAsValues(state.frames), [places, history]),
      };
    }

    /** A flow from its first frame: the model is shown how it went on from there. */
    function setStart(field) {
      const viscosity = settings?.viscosity ?? 1e-3;
      state.frames = [field, ...following(field, state.side, viscosity, history - 1)];
      changed();
    }

    function changed() {
      state.painted = null;
      rollout.forget();
      drawStart();
      rollout.redraw();
      asker.changed();
    }

    function show(figure, values, scale) {
      const { side } = state;
      const ring = figure === start && pointer;
      figure.show((paint) => {
        paint.field({ ...closed(values, side), scale, smooth: true });
        if (ring) paint.ring({ point: ring, radius: state.radius });
      }, scale);
      figure.reading((place) => shortNumber(values[cellOf(place, side)]));
    }

    function drawStart() {
      if (!state.frames.length) return;
      const field = state.painted ?? state.frames[0];
      show(start, field, vorticity);
      const hint = beyond(field, settings?.convention)
        ? "Stronger than any start in training."
        : "Press and drag to put a vortex in.";
      start.caption(`t = −${history - 1}. ${hint}`);
    }

    // A vortex is put where one presses, is dragged along, and stays where it is let go. The model
    // is not asked before that: what came between the start and now must be computed first.
    start.pointing({
      step: 0.03,
      down: hold,
      move: hold,
      up: () => setStart(state.painted),
      hover(place) {
        pointer = place;
        drawStart();
      },
    });

    function hold(place) {
      if (!state.frames.length) return false;
      pointer = place;
      rollout.player.pause();
      rollout.forget();
      rollout.redraw();
      state.painted = Float32Array.from(state.frames[0]);
      addVortex(state.painted, state.side, ...place, state.sign * vorticity.high, state.radius);
      drawStart();
      return true;
    }

    // Controls.
    const vortices = room.controls("Vortex");
    vortices.choice({
      label: "Sense of turning",
      options: [
        ["1", "Counterclockwise"],
        ["-1", "Clockwise"],
      ],
      value: "1",
      change: (sign) => (state.sign = Number(sign)),
    });
    vortices.slider({
      label: "Width",
      min: 0.03,
      max: 0.15,
      step: 0.01,
      value: state.radius,
      show: (radius) => `${Math.round(200 * radius)} % of the side`,
      input: (radius) => (state.radius = radius),
    });
    vortices.button({ label: "Still water", press: () => setStart(still()) });
    vortices.note(`The model sees ${history} frames, from t = −${history - 1} to 0, and goes on from there.`);
    rollout.controls();

    function still() {
      return new Float32Array(state.side ** 2);
    }

    function showSample({ points, values }) {
      state.side = Math.round(Math.sqrt(points.shape[0]));
      const channels = values.shape[1];
      state.frames = Array.from({ length: history }, (_, k) => channelOf(values.data, channels, k));
      changed();
    }

    if (samples) rollout.startFrom(await room.backend.sample(0), "test sample 1");
    else {
      const field = still();
      addVortex(field, state.side, 0.4, 0.5, vorticity.high, 0.1);
      setStart(field);
    }
    rollout.player.begin();
    return { state };
  },
};

/** A periodic field with its first row and column once more behind the last, as `field` paints it:
 *  every value around its point. */
function closed(values, side) {
  const found = new Float32Array((side + 1) ** 2);
  for (let i = 0, k = 0; i <= side; i++) {
    for (let j = 0; j <= side; j++) found[k++] = values[(i % side) * side + (j % side)];
  }
  const ends = [-0.5 / side, 1 + 0.5 / side];
  return { values: found, shape: [side + 1, side + 1], box: [ends, ends] };
}

/** The point of a grid that is nearest to a place. */
function cellOf([x, y], side) {
  const line = (value) => ((Math.round(value * side) % side) + side) % side;
  return line(x) * side + line(y);
}
