// Fields as pictures of pixels: on a grid, and on a mesh of triangles. Nothing here needs a page.

/** Values on a grid of `shape` [nx, ny], where `values[i * ny + j]` is at the i-th x and the j-th y,
 *  as an image nx wide and ny high with y upwards. What is not a number stays transparent. */
export function gridPixels(values, [nx, ny], scale) {
  const pixels = new Uint8ClampedArray(4 * nx * ny);
  const colours = scale.table;
  for (let i = 0; i < nx; i++) {
    for (let j = 0; j < ny; j++) {
      const value = values[i * ny + j];
      if (value !== value) continue;
      const from = 3 * scale.index(value);
      const to = 4 * ((ny - 1 - j) * nx + i);
      pixels[to] = colours[from];
      pixels[to + 1] = colours[from + 1];
      pixels[to + 2] = colours[from + 2];
      pixels[to + 3] = 255;
    }
  }
  return { pixels, width: nx, height: ny };
}

/** Values at the nodes of triangles, linear inside each, as an image.
 *
 *  `places` are x and y of every node in pixels of the image, `triangles` three nodes each. */
export function meshPixels(places, triangles, values, scale, width, height) {
  const pixels = new Uint8ClampedArray(4 * width * height);
  const colours = scale.table;
  for (let t = 0; t + 2 < triangles.length; t += 3) {
    const [a, b, c] = [triangles[t], triangles[t + 1], triangles[t + 2]];
    const ax = places[2 * a], ay = places[2 * a + 1];
    const bx = places[2 * b], by = places[2 * b + 1];
    const cx = places[2 * c], cy = places[2 * c + 1];
    const area = (bx - ax) * (cy - ay) - (cx - ax) * (by - ay);
    if (!area) continue;
    const left = Math.max(0, Math.ceil(Math.min(ax, bx, cx) - 0.5));
    const right = Math.min(width - 1, Math.floor(Math.max(ax, bx, cx) - 0.5));
    const top = Math.max(0, Math.ceil(Math.min(ay, by, cy) - 0.5));
    const bottom = Math.min(height - 1, Math.floor(Math.max(ay, by, cy) - 0.5));
    const va = values[a], vb = values[b], vc = values[c];
    for (let row = top; row <= bottom; row++) {
      for (let column = left; column <= right; column++) {
        const x = column + 0.5, y = row + 0.5;
        const wb = ((x - ax) * (cy - ay) - (cx - ax) * (y - ay)) / area;
        const wc = ((bx - ax) * (y - ay) - (x - ax) * (by - ay)) / area;
        // A little more than the triangle, so that no seam is left between two.
        if (wb < -1e-6 || wc < -1e-6 || wb + wc > 1 + 1e-6) continue;
        const value = va + wb * (vb - va) + wc * (vc - va);
        if (value !== value) continue;
        const from = 3 * scale.index(value);
        const to = 4 * (row * width + column);
        pixels[to] = colours[from];
        pixels[to + 1] = colours[from + 1];
        pixels[to + 2] = colours[from + 2];
        pixels[to + 3] = 255;
      }
    }
  }
  return { pixels, width, height };
}

/** The triangles of a grid of quadrilaterals with nodes `i * ny + j`, two for each; `closed` joins
 *  the last row of i to the first. */
export function gridTriangles(nx, ny, closed = false) {
  const found = [];
  for (let i = 0; i < (closed ? nx : nx - 1); i++) {
    const next = (i + 1) % nx;
    for (let j = 0; j + 1 < ny; j++) {
      const [a, b, c, d] = [i * ny + j, next * ny + j, next * ny + j + 1, i * ny + j + 1];
      found.push(a, b, c, a, c, d);
    }
  }
  return Uint32Array.from(found);
}

/** The edges of such a grid as pieces of lines x0 y0 x1 y1, one after the other. */
export function gridLines(points, nx, ny) {
  const found = [];
  const join = (a, b) => {
    found.push(points[2 * a], points[2 * a + 1], points[2 * b], points[2 * b + 1]);
  };
  for (let i = 0; i < nx; i++) {
    for (let j = 0; j < ny; j++) {
      if (i + 1 < nx) join(i * ny + j, (i + 1) * ny + j);
      if (j + 1 < ny) join(i * ny + j, i * ny + j + 1);
    }
  }
  return found;
}

/** The outline of triangles, which is the edges that belong to one of them, as pieces of lines. */
export function outline(points, triangles) {
  const edges = new Map();
  const count = points.length;
  for (let t = 0; t + 2 < triangles.length; t += 3) {
    for (let corner = 0; corner < 3; corner++) {
      const [a, b] = [triangles[t + corner], triangles[t + ((corner + 1) % 3)]];
      const name = Math.min(a, b) * count + Math.max(a, b);
      if (!edges.delete(name)) edges.set(name, [a, b]);
    }
  }
  return [...edges.values()].flatMap((edge) => {
    return edge.flatMap((node) => [points[2 * node], points[2 * node + 1]]);
  });
}

/** Where a field that is linear in triangles takes a value: pieces of lines x0 y0 x1 y1, one after
 *  the other. `points` are x and y of every node. */
export function contour({ points, triangles, values }, level) {
  const found = [];
  for (let t = 0; t + 2 < triangles.length; t += 3) {
    for (let corner = 0; corner < 3; corner++) {
      const from = triangles[t + corner];
      const to = triangles[t + ((corner + 1) % 3)];
      const [a, b] = [values[from] - level, values[to] - level];
      if (a < 0 === b < 0 || a !== a || b !== b) continue;
      const part = a / (a - b);
      for (const axis of [0, 1]) {
        const [start, end] = [points[2 * from + axis], points[2 * to + axis]];
        found.push(start + part * (end - start));
      }
    }
  }
  return found;
}

/** The index of the place that is nearest to x, y, of places x0 y0 x1 y1 … */
export function nearest(places, x, y) {
  let found = 0;
  let least = Infinity;
  for (let k = 0; 2 * k < places.length; k++) {
    const far = (places[2 * k] - x) ** 2 + (places[2 * k + 1] - y) ** 2;
    if (far < least) [least, found] = [far, k];
  }
  return found;
}
