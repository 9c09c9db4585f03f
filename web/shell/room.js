// What a scene is given: its model, and a place for figures, controls and what it has to say.

import { Figure } from "../draw/figure.js";
import { Asker } from "./asker.js";
import { Controls } from "./controls.js";
import { element } from "./elements.js";
import { counted, duration } from "./numbers.js";
import { Player } from "./player.js";

const LATE = 500; // milliseconds after which one wonders whether anything happens

export class Room {
  #closing = [];
  #time = element("p", { class: "time", role: "status" });
  #stop = element("button", { type: "button", hidden: true }, "Stop");
  #error = element("p", { class: "error", role: "alert", hidden: true });
  #numbers = element("dl", { class: "numbers", "aria-live": "polite" });
  #figures = element("div", { class: "figures" });
  #controls = element("div", { class: "controls" });
  #remarks = element("p", { class: "remarks", role: "status", hidden: true });

  constructor(model, backend) {
    this.model = model;
    this.backend = backend;
    this.last = null;
    const stage = element("div", { class: "stage" }, this.#figures, this.#remarks, this.#numbers);
    const work = element("div", { class: "work" }, this.#time, this.#stop);
    const side = element("aside", {}, this.#controls, work);
    this.element = element("div", { class: "room" }, this.#error, stage, side);
  }

  /** A figure, beside those that are there. */
  figure(options) {
    const figure = new Figure(options);
    this.#figures.append(figure.element);
    return figure;
  }

  /** A group of controls. */
  controls(title) {
    const made = new Controls(title);
    this.#controls.append(made.element);
    return made;
  }

  /** A player for times, below the figures. */
  player(options) {
    // Numbers that change several times a second are not read aloud.
    const told = (on) => this.#numbers.setAttribute("aria-live", on ? "off" : "polite");
    const made = new Player({ ...options, told });
    this.#figures.after(made.element);
    this.#closing.push(() => made.pause());
    return made;
  }

  /** Questions to the model that follow a pointer: `question({ moving, rows })` and
   *  `show(answer, question)` as in asker.js. */
  asker({ question, show }) {
    const asker = new Asker({
      question,
      ask: (inputs, signal) => this.#ask(inputs, signal),
      show: (answer, asked) => {
        this.last = { inputs: asked.inputs, answer, coarse: Boolean(asked.coarse) };
        this.fail(null);
        this.took(answer, asked);
        this.#remark(answer.remarks ?? []);
        show(answer, asked);
      },
      fail: (error) => {
        this.#time.textContent = "";
        this.fail(error);
      },
    });
    this.#stop.addEventListener("click", () => {
      asker.stop();
      this.#time.textContent = "Stopped. Change something to ask again.";
    });
    this.#closing.push(() => asker.close());
    this.asked = asker;
    return asker;
  }

  async #ask(inputs, signal) {
    const late = setTimeout(() => {
      this.#time.textContent = "The model is at work …";
      this.#stop.hidden = false;
    }, LATE);
    try {
      return await this.backend.predict(inputs, { signal });
    } finally {
      clearTimeout(late);
      this.#stop.hidden = true;
    }
  }

  /** How long the model took, and what it answered: `size` is times and places, where the answer's
   *  shape does not say so. Without `milliseconds` of its own it is all that it took. */
  took({ prediction, milliseconds }, { took, size = prediction.shape.slice(-3) }) {
    if (!size) {
      this.#time.textContent = `${duration(took)} in all`;
      return;
    }
    const served = this.backend.kind === "server";
    const where = served ? "on the server" : "in this browser";
    const [times, rows] = size;
    const places = `${counted(rows, "place")}${times > 1 ? ` at ${times} times` : ""}`;
    const all = served && took - milliseconds > 5 ? `, ${duration(took)} in all` : "";
    this.#time.textContent =
      milliseconds === undefined
        ? `${duration(took)} in all for ${places}`
        : `${duration(milliseconds)} ${where} for ${places}${all}`;
  }

  /** A sentence in the place of figures, where there is nothing to show. */
  note(text) {
    const line = element("p", { class: "missing" }, text);
    this.#figures.before(line);
    return line;
  }

  /** What an answer is to be taken with: inputs unlike those of training. */
  #remark(remarks) {
    this.#remarks.hidden = !remarks.length;
    const text = remarks.map((said) => said[0].toUpperCase() + said.slice(1)).join(" ");
    // What is said already is not said again, which would be read aloud.
    if (this.#remarks.textContent !== text) this.#remarks.textContent = text;
  }

  /** Numbers below the figures, by their names; null takes one away. */
  tell(numbers) {
    this.#numbers.replaceChildren(
      ...Object.entries(numbers)
        .filter(([, value]) => value !== null)
        .map(([name, value]) => {
          return element("div", {}, element("dt", {}, name), element("dd", {}, value));
        }),
    );
  }

  /** Show what went wrong, in a sentence; null when all is well again. */
  fail(error) {
    this.#error.hidden = !error;
    this.#error.textContent = error ? error.message : "";
  }

  /** Run something that may fail, like a press of a button; what goes wrong is shown. */
  async try(work) {
    try {
      await work();
      this.fail(null);
    } catch (error) {
      this.fail(error);
    }
  }

  /** Call `work` when the scene is left. */
  onClose(work) {
    this.#closing.push(work);
  }

  close() {
    for (const work of this.#closing.reverse()) work();
    this.element.remove();
  }
}
