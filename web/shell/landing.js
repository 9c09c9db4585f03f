// A few sentences for whoever sees the page for the first time. They can be put away, and asked for
// again.

import { element } from "./elements.js";

const PUT_AWAY = "ipot-landing";

/** Show the text in `place` unless it was put away before; `button` shows it again. `solves` says
 *  that there is a server, and so are solvers. */
export function startLanding(place, button, { solves }) {
  const close = element("button", { type: "button", class: "close", "aria-label": "Close this text" }, "×");
  place.append(sentences(solves), close);
  const show = (on) => {
    place.hidden = !on;
    button.setAttribute("aria-expanded", String(on));
    remember(on);
  };
  close.addEventListener("click", () => {
    show(false);
    button.focus(); // what had the focus is gone, and this brings it back
  });
  button.addEventListener("click", () => show(place.hidden));
  show(!wasPutAway());
}

/** What a trained operator is, what can be done here, and how to train one. */
function sentences(solves) {
  const does = "Drag shapes, paint inputs or take sensors away, and the answer follows; ";
  const compares = solves
    ? [element("b", {}, "Solve"), " compares it with a classical solver. "]
    : [element("b", {}, "Test sample"), " compares one with a solver's solution. "];
  return element(
    "p",
    {},
    "A trained operator is a neural network that has learnt from solved cases how the solution of an ",
    "equation follows from its inputs, with both given at any points. ",
    does,
    ...compares,
    "Train one on your own data: ",
    command("ipot fit cases.npz --inputs a --targets u --out model"),
    ", then ",
    command("ipot serve model"),
    ".",
  );
}

/** A command, of which no line ends within a flag and its value. */
function command(line) {
  const words = line.split(/ (?=--)/).map((word) => element("span", {}, word));
  return element("code", {}, ...words.flatMap((word) => [" ", word]).slice(1));
}

/** A browser may forbid that anything is kept; then the text is there at every visit. */
function remember(shown) {
  try {
    if (shown) localStorage.removeItem(PUT_AWAY);
    else localStorage.setItem(PUT_AWAY, "yes");
  } catch {
    // Nothing depends on it.
  }
}

function wasPutAway() {
  try {
    return localStorage.getItem(PUT_AWAY) !== null;
  } catch {
    return false;
  }
}
