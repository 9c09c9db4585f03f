// Controls of a scene: native elements, so that they work with keys and screen readers by themselves.

import { element } from "./elements.js";

let count = 0;

/** A group of controls under a heading. */
export class Controls {
  constructor(title) {
    this.element = element("fieldset", {}, element("legend", {}, title));
  }

  /** A slider. `show(value)` is its text; `input(value)` is called while it moves, `change(value)`
   *  when it is let go. `values` may list what it stops at. */
  slider({ label, min = 0, max, step = 1, value, values = null, show = String, input, change }) {
    const id = `control-${++count}`;
    const at = (index) => (values ? values[index] : index);
    if (values) [min, max, step] = [0, values.length - 1, 1];
    const place = (wanted) => (values ? nearest(values, wanted) : wanted);
    const slider = element("input", { type: "range", id, min, max, step });
    const text = element("output", { for: id });
    const read = () => at(Number(slider.value));
    const tell = () => {
      text.textContent = show(read());
      slider.setAttribute("aria-valuetext", text.textContent);
    };
    slider.value = place(value);
    slider.addEventListener("input", () => {
      tell();
      input?.(read());
    });
    slider.addEventListener("change", () => change?.(read()));
    tell();
    this.element.append(
      element("div", { class: "slider" }, element("label", { for: id }, label), text, slider),
    );
    return {
      element: slider,
      get value() {
        return read();
      },
      set value(wanted) {
        slider.value = place(wanted);
        tell();
      },
    };
  }

  /** A button; with `main` the one that stands out. While `press` is at work it cannot be pressed. */
  button({ label, press, main = false, hint = null }) {
    const button = element("button", { type: "button", class: main && "main", title: hint }, label);
    button.addEventListener("click", async () => {
      button.disabled = true;
      try {
        await press();
      } finally {
        button.disabled = false;
      }
    });
    this.#row().append(button);
    return button;
  }

  /** One of a few: `options` is a list of [value, text]. */
  choice({ label, options, value, change }) {
    const name = `control-${++count}`;
    const box = element("div", { class: "choice", role: "radiogroup", "aria-label": label });
    for (const [option, text] of options) {
      const id = `${name}-${option}`;
      const radio = element("input", { type: "radio", name, id, value: option });
      radio.checked = option === value;
      radio.addEventListener("change", () => radio.checked && change(option));
      box.append(radio, element("label", { for: id }, text));
    }
    this.element.append(element("div", { class: "labelled" }, element("span", {}, label), box));
    return {
      element: box,
      get value() {
        return options.map(([o]) => o).find((o) => box.querySelector(`[value="${o}"]`).checked);
      },
      set value(wanted) {
        box.querySelector(`[value="${wanted}"]`).checked = true;
      },
    };
  }

  /** A list to choose from: `options` is a list of [value, text]. */
  list({ label, options, value, change }) {
    const id = `control-${++count}`;
    const list = element("select", { id });
    for (const [option, text] of options) list.append(element("option", { value: option }, text));
    list.value = value;
    list.addEventListener("change", () => change(list.value));
    this.element.append(
      element("div", { class: "labelled" }, element("label", { for: id }, label), list),
    );
    return list;
  }

  /** Something that is on or off. */
  toggle({ label, value = false, change }) {
    const box = element("input", { type: "checkbox" });
    box.checked = value;
    box.addEventListener("change", () => change(box.checked));
    this.element.append(element("label", { class: "toggle" }, box, label));
    return box;
  }

  /** Something to choose a file with: `chosen(file)` is called for each. */
  file({ label, accept, chosen }) {
    const id = `control-${++count}`;
    const input = element("input", { type: "file", id, accept, class: "file" });
    input.addEventListener("change", async () => {
      const [file] = input.files;
      if (!file) return;
      input.disabled = true;
      try {
        await chosen(file);
      } finally {
        input.disabled = false;
        input.value = ""; // the same file may be chosen again
      }
    });
    this.element.append(element("div", {}, input, element("label", { for: id }, label)));
    return input;
  }

  /** A line of text; its `textContent` may be changed. */
  note(text = "") {
    const line = element("p", { class: "note" }, text);
    this.element.append(line);
    return line;
  }

  /** Any element. */
  add(child) {
    this.element.append(child);
    return child;
  }

  /** Buttons one after the other share a row. */
  #row() {
    const last = this.element.lastElementChild;
    if (last.classList.contains("buttons")) return last;
    return this.add(element("div", { class: "buttons" }));
  }
}

function nearest(values, wanted) {
  let best = 0;
  values.forEach((value, k) => {
    if (Math.abs(value - wanted) < Math.abs(values[best] - wanted)) best = k;
  });
  return best;
}
