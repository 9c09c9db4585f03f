// A model's answer, and beside it the truth and the error where they are known.

import { rangeOf } from "../draw/colours.js";
import { absoluteError, duration, percent, relativeError, shortNumber } from "./numbers.js";

/** Three figures over one box with one scale, `controls()` that bring the truth, and the numbers
 *  that compare.
 *
 *  - `paint(figure, values, scale, part)` shows flat values in a figure; `part` is "answer", "truth"
 *    or "error".
 *  - `scale()` is the scale of truth and answer.
 *  - `inputs()` is what the solver is asked, and `method` how it solves, in words.
 *  - `showSample(sample)` shows the inputs of a sample, and gives its targets as flat values.
 *  - `part(values)` are those of the values whose errors are shown, and `measured` what they are
 *    called; all, unless said. */
export class Comparison {
  answer = null;
  truth = null;
  #times = 1;
  #turn = 0; // of what is shown: a solution that comes too late belongs to something else

  constructor(room, { quantity, label, box, scale, paint, inputs, method, showSample, ...about }) {
    Object.assign(this, { room, scale, paint, inputs, method, showSample });
    Object.assign(this, { part: (values) => values, measured: null, ...about });
    const make = (title, what) => room.figure({ title, box, label: what, large: true });
    this.answered = make(`${quantity}, by the model`, label);
    this.solved = make(`${quantity}, solved`, `${quantity} of the solver`);
    this.wrong = make("Error of the model", `error of the model, ${quantity}`);
    this.#hide();
  }

  /** Something else is shown: the truth that was known is none of it. */
  forget() {
    this.#turn++;
    if (!this.truth) return;
    this.truth = null;
    this.#compare();
  }

  /** The model has answered. */
  show(values) {
    this.answer = values;
    this.redraw();
  }

  /** Paint all that is there. */
  redraw() {
    if (this.answer) this.paint(this.answered, this.answer, this.scale(), "answer");
    this.#compare();
  }

  #hide() {
    for (const figure of [this.solved, this.wrong]) figure.element.hidden = !this.truth;
  }

  #compare() {
    const { answer, truth, room } = this;
    this.#hide();
    if (!truth) {
      room.tell({});
      return;
    }
    this.paint(this.solved, truth.values, this.scale(), "truth");
    this.solved.caption(truth.from);
    if (answer?.length !== truth.values.length) return;
    const [found, wanted] = [answer, truth.values].map((values) => this.part(values));
    const error = absoluteError(found, wanted);
    this.paint(this.wrong, error, this.scale().forErrors(this.#times), "error");
    this.wrong.caption(
      this.#times === 1 ? "on a scale as long as that of the answer" : `magnified ${this.#times} times`,
    );
    const numbers = { "relative error": percent(relativeError(answer, truth.values)) };
    if (this.measured) {
      numbers[`relative error of the ${this.measured}`] = percent(relativeError(found, wanted));
    }
    room.tell({ ...numbers, "largest error": `${shortNumber(rangeOf(error)[1])} ${this.scale().unit}` });
  }

  /** The controls that bring the truth, behind those that are there already. */
  controls() {
    const { room } = this;
    if (!room.backend.solves && !room.model.samples) return;
    const group = room.controls("Truth");
    if (room.backend.solves) {
      const button = group.button({
        label: "Solve",
        main: true,
        press: () => room.try(() => this.#solve(button)),
      });
    }
    if (room.model.samples) {
      let next = 0;
      group.button({
        label: "Test sample",
        hint: "A sample that the model was not trained on, with its solution",
        press: () => room.try(() => this.#sample(next++ % room.model.samples)),
      });
    }
    group.toggle({
      label: "Errors 10 times magnified",
      change: (on) => {
        this.#times = on ? 10 : 1;
        this.#compare();
      },
    });
  }

  async #solve(button) {
    const turn = this.#turn;
    const progress = (part) => (button.textContent = `Solving … ${Math.round(100 * part)} %`);
    button.textContent = "Solving …";
    try {
      const found = await this.room.backend.solve(this.inputs(), { progress });
      if (turn !== this.#turn) return;
      const from = `${this.method}, in ${duration(found.milliseconds)}`;
      this.truth = { values: found.targets.data, from };
      this.#compare();
    } finally {
      button.textContent = "Solve";
    }
  }

  async #sample(index) {
    const values = this.showSample(await this.room.backend.sample(index));
    this.truth = { values, from: `test sample ${index + 1}` };
    this.#compare();
  }
}
