// The controls that bring the truth: the problem's solver where there is one, and test samples.

import { duration } from "./numbers.js";

/** A group of controls behind those that are there already; it is given back.
 *
 *  - `inputs()` is what the solver is asked, and `method` how it solves, in words.
 *  - `solved(targets, from)` is told of a solution and how it came about; `turn()` is a number that
 *    changes when something else is shown, since a solution that comes too late is none of that.
 *  - `sample(sample, from)` shows a test sample.
 *  - `magnify(times)`, if given, is told how much errors are magnified.
 *  - `shown` samples have been shown already: the next one comes first.
 *
 *  A solver at work is ended by Cancel, by a test sample, when the scene is left, and at its next word
 *  on what is done if something else is shown by then. */
export function truthControls(
  room,
  { inputs, method, turn, solved, sample, magnify = null, shown = 0 },
) {
  const { backend, model } = room;
  const group = room.controls("Truth");
  let running = null; // ends the solver that is at work
  const stop = () => running?.abort();
  if (backend.solves) {
    const button = group.button({
      label: "Solve",
      main: true,
      press: () => room.try(() => solve(button, cancel)),
    });
    const cancel = group.button({ label: "Cancel", press: stop });
    cancel.hidden = true;
    room.onClose(stop);
  }
  if (model.samples) {
    let next = shown;
    group.button({
      label: "Test sample",
      hint: "A sample that the model was not trained on, with its solution",
      press() {
        stop();
        return room.try(async () => {
          const index = next++ % model.samples;
          await sample(await backend.sample(index), `test sample ${index + 1}`);
        });
      },
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

  async function solve(button, cancel) {
    const before = turn();
    running = new AbortController();
    const { signal } = running;
    const progress = (part) => {
      button.textContent = `Solving … ${Math.round(100 * part)} %`;
      if (before !== turn()) stop();
    };
    button.textContent = "Solving …";
    cancel.hidden = false;
    try {
      const { targets, milliseconds } = await backend.solve(inputs(), { progress, signal });
      if (before === turn()) solved(targets, `${method}, in ${duration(milliseconds)}`);
    } catch (error) {
      if (!signal.aborted) throw error;
    } finally {
      running = null;
      cancel.hidden = true;
      button.textContent = "Solve";
    }
  }
}
