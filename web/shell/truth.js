// The controls that bring the truth: the problem's solver where there is one, and test samples.

import { duration } from "./numbers.js";

/** A group of controls behind those that are there already; it is given back.
 *
 *  - `inputs()` is what the solver is asked, and `method` how it solves, in words.
 *  - `solved(targets, from)` is told of a solution and how it came about; `turn()` is a number that
 *    changes when something else is shown, since a solution that comes too late is none of that.
 *  - `sample(sample, from)` shows a test sample.
 *  - `magnify(times)`, if given, is told how much errors are magnified.
 *  - `shown` samples have been shown already: the next one comes first. */
export function truthControls(
  room,
  { inputs, method, turn, solved, sample, magnify = null, shown = 0 },
) {
  const { backend, model } = room;
  const group = room.controls("Truth");
  if (backend.solves) {
    const button = group.button({
      label: "Solve",
      main: true,
      press: () => room.try(() => solve(button)),
    });
  }
  if (model.samples) {
    let next = shown;
    group.button({
      label: "Test sample",
      hint: "A sample that the model was not trained on, with its solution",
      press: () =>
        room.try(async () => {
          const index = next++ % model.samples;
          await sample(await backend.sample(index), `test sample ${index + 1}`);
        }),
    });
  }
  if (!backend.solves) {
    const why =
      backend.kind === "wasm"
        ? "This page runs without a server, and a solver needs one."
        : "There is no solver for this model.";
    group.note(model.samples ? `${why} Test samples have their solution with them.` : why);
  }
  if (magnify && (backend.solves || model.samples)) {
    group.toggle({
      label: "Errors 10 times magnified",
      change: (on) => magnify(on ? 10 : 1),
    });
  }
  return group;

  async function solve(button) {
    const before = turn();
    const progress = (part) => (button.textContent = `Solving … ${Math.round(100 * part)} %`);
    button.textContent = "Solving …";
    try {
      const { targets, milliseconds } = await backend.solve(inputs(), { progress });
      if (before === turn()) solved(targets, `${method}, in ${duration(milliseconds)}`);
    } finally {
      button.textContent = "Solve";
    }
  }
}
