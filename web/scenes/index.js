// All scenes. A new one is a file beside this one and a line here.

import airfoil from "./airfoil.js";
import darcy from "./darcy.js";
import elasticity from "./elasticity.js";
import plasticity from "./plasticity.js";

const scenes = [airfoil, darcy, elasticity, plasticity];

/** The scene for a model; null where there is none. */
export function sceneFor(model) {
  return scenes.find((scene) => scene.problem === model.problem) ?? null;
}
