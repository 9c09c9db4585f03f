// What a block of attention does to each row by itself, on a CPU: a norm and a projection before
// its attention; output projection, residual and gated feed-forward behind it. Nothing is
// differentiated.
//
// Some rows at a time go through all of it, so that what lies between stays in the nearest caches.
// Weights stand inputs by outputs, and outputs fill whole vectors. `ipot.accelerate.cpu.blocks`
// calls these; `ipot.nn.attention` has the formulas.
#include "gelu.h"

using namespace rows;

namespace {

constexpr long SOME = 48;  // rows at a time: a whole number of those that a product takes at once

// to = from @ weight + bias, for rows that lie side by side.
void apply(const Layer& layer, const float* from, long count, float* to) {
  for (long r = 0; r < count; ++r)
    if (layer.bias)
      std::copy_n(layer.bias, layer.outputs, to + r * layer.outputs);
    else
      std::fill_n(to + r * layer.outputs, layer.outputs, 0.0f);
  add_product(count, layer.outputs, layer.inputs, {from, layer.inputs, 1}, layer.weight,
              layer.outputs, to, layer.outputs);
}

void normalised(const float* from, long count, long width, float epsilon, float* to) {
  std::copy_n(from, count * width, to);
  for (long r = 0; r < count; ++r) normalise(to + r * width, width, epsilon);
}

// A projection of normalised rows; the norm's own weights are in the layer's.
void norm_project(const float* rows, long count, const Layer& layer, float epsilon, float* out,
                  int threads) {
  Rooms<std::vector<float>> rooms(threads, std::vector<float>(SOME * layer.inputs));
#pragma omp parallel num_threads(threads)
  {
    float* normed = rooms.own().data();
#pragma omp for schedule(static)
    for (long work = 0; work < pieces(count, SOME); ++work) {
      const long first = work * SOME, some = std::min(SOME, count - first);
      normalised(rows + first * layer.inputs, some, layer.inputs, epsilon, normed);
      apply(layer, normed, some, out + first * layer.outputs);
    }
  }
}

// h = row + project(attended), then h + close(x * gelu(g)) with [x, g] = open(norm(h)). There may
// be fewer rows than attended ones: then they serve again and again.
void finish(const float* rows, long own, const float* attended, long count, const Layer& project,
            const Layer& open, const Layer& close, float epsilon, float* out, int threads) {
  const long width = project.outputs, hidden = close.inputs;
  Rooms<std::vector<float>> rooms(threads, std::vector<float>(SOME * (width + 3 * hidden)));
#pragma omp parallel num_threads(threads)
  {
    float* normed = rooms.own().data();
    float *gates = normed + SOME * width, *inner = gates + SOME * 2 * hidden;
#pragma omp for schedule(static)
    for (long work = 0; work < pieces(count, SOME); ++work) {
      const long first = work * SOME, some = std::min(SOME, count - first);
      float* to = out + first * width;
      apply(project, attended + first * project.inputs, some, to);
      for (long r = 0; r < some; ++r) {
        const float* row = rows + (first + r) % own * width;
        for (long i = 0; i < width; i += LANES)
          store(to + r * width + i, load(to + r * width + i) + load(row + i));
      }
      normalised(to, some, width, epsilon, normed);
      apply(open, normed, some, gates);
      for (long r = 0; r < some; ++r) {
        const float *x = gates + r * 2 * hidden, *gate = x + hidden;
        for (long i = 0; i < hidden; i += LANES)
          store(&inner[r * hidden + i], load(x + i) * gelu(load(gate + i)));
        if (close.bias)
          for (long i = 0; i < width; i += LANES)
            store(to + r * width + i, load(to + r * width + i) + load(close.bias + i));
      }
      add_product(some, width, hidden, {inner, hidden, 1}, close.weight, width, to, width);
    }
  }
}

}  // namespace

// Both return 0, or 1 where there was not enough memory.
extern "C" int ipot_norm_project(const float* rows, long count, const Layer* layer, float epsilon,
                                 float* out, int threads) {
  return attempt([&] { norm_project(rows, count, *layer, epsilon, out, threads); });
}

extern "C" int ipot_finish(const float* rows, long own, const float* attended, long count,
                           const Layer* project, const Layer* open, const Layer* close,
                           float epsilon, float* out, int threads) {
  return attempt([&] {
    finish(rows, own, attended, count, *project, *open, *close, epsilon, out, threads);
  });
}
