// All scenes. A new one is a file beside this one and a line here.

import airfoil from "./airfoil.js";
import burgers from "./burgers.js";
import darcy from "./darcy.js";
import elasticity from "./elasticity.js";
import navierStokes from "./navier_stokes.js";
import own from "./own.js";
import plasticity from "./plasticity.js";
import shallowWater from "./shallow_water.js";
import sst from "./sst.js";

const scenes = [airfoil, burgers, darcy, elasticity, navierStokes, plasticity, shallowWater, sst];

/** The scene for a model: that of its problem, or the one that shows any model. */
export function sceneFor(model) {
  return scenes.find((scene) => scene.problem === model.problem) ?? own;
}
