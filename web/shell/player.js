// A player for fields in time: play and pause, one frame at a time, and a slider to scrub.

import { element } from "./elements.js";

/** `frames` is how many there are, `show(index)` draws one, `time(index)` is its text. `rate` is
 *  frames a second; `told(playing)` hears of play and pause. */
export class Player {
  #timer = 0;
  #frame = 0;
  #frames = 1;

  constructor({ frames = 1, show, time = String, rate = 8, told = () => {} }) {
    Object.assign(this, { show, time, rate, told });
    this.button = element("button", { type: "button", onclick: () => this.toggle() });
    this.slider = element("input", { type: "range", min: 0, step: 1, "aria-label": "time" });
    this.slider.addEventListener("input", () => {
      this.pause();
      this.frame = Number(this.slider.value);
    });
    this.text = element("output", {});
    this.element = element("div", { class: "player" }, this.button, this.slider, this.text);
    this.frames = frames;
    this.#label();
  }

  get playing() {
    return this.#timer !== 0;
  }

  get frame() {
    return this.#frame;
  }

  set frame(index) {
    this.#frame = Math.min(this.#frames - 1, Math.max(0, index));
    this.slider.value = this.#frame;
    this.text.textContent = this.time(this.#frame);
    this.slider.setAttribute("aria-valuetext", this.text.textContent);
    this.show(this.#frame);
  }

  get frames() {
    return this.#frames;
  }

  /** How many frames there are; the one that is shown stays, where it still is there. */
  set frames(count) {
    this.#frames = Math.max(1, count);
    this.slider.max = this.#frames - 1;
    this.element.classList.toggle("alone", this.#frames < 2);
  }

  play() {
    if (this.playing || this.#frames < 2) return;
    if (this.#frame === this.#frames - 1) this.frame = 0;
    this.#timer = setInterval(() => {
      if (!this.element.isConnected) return this.pause();
      this.frame = (this.#frame + 1) % this.#frames;
      return undefined;
    }, 1000 / this.rate);
    this.#label();
  }

  /** Play, unless the user wants things to keep still. */
  begin() {
    if (!matchMedia("(prefers-reduced-motion: reduce)").matches) this.play();
  }

  pause() {
    clearInterval(this.#timer);
    this.#timer = 0;
    this.#label();
  }

  toggle() {
    if (this.playing) this.pause();
    else this.play();
  }

  #label() {
    this.button.textContent = this.playing ? "Pause" : "Play";
    this.told(this.playing);
  }
}
