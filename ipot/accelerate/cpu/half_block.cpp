// What a block of attention does to each row by itself, on a CPU with products in bf16, as
// `block.cpp` has it in float32. Norms, residuals and the gate are in float32. Weights are packed
// at every call: they may have changed, and few rows take longer than that.
#include "gelu.h"
#include "half_layers.h"

#if defined(IPOT_HALVES)

using namespace halves;

namespace {

constexpr long SOME = 48;  // rows at a time: a whole number of those that a product takes at once

// Normalised rows in pairs.
void normalised(const float* from, long count, long width, float epsilon, float* one, Pair* to,
                long row) {
  for (long r = 0; r < count; ++r) {
    std::copy_n(from + r * width, width, one);
    normalise(one, width, epsilon);
    round_row(one, width, 1.0f, to + r * row);
  }
}

void norm_project(const float* rows, long count, const Layers& layers, float epsilon, float* out,
                  int threads) {
  const long width = layers.inputs, row = layers.row(), line = padded(width, LANES);
  const Room<Pair> rounded(threads * SOME * row);
  const Room<float> ones(threads * line);
#pragma omp parallel num_threads(threads)
  {
    Pair* normed = rounded.data() + omp_get_thread_num() * SOME * row;
    float* one = ones.data() + omp_get_thread_num() * line;
#pragma omp for schedule(static)
    for (long work = 0; work < pieces(count, SOME); ++work) {
      const long first = work * SOME, some = std::min(SOME, count - first);
      normalised(rows + first * width, some, width, epsilon, one, normed, row);
      layers.apply(normed, some, out + first * layers.outputs);
    }
  }
}

// The layers after the attention of a block.
struct Behind {
  Layers project, open, close;
};

// The room of one thread.
struct Desk {
  Room<float> one, gates;
  Room<Pair> rows;

  explicit Desk(const Behind& layers)
      : one(padded(std::max(layers.open.inputs, layers.close.inputs), LANES)),
        gates(SOME * layers.open.outputs),
        rows(SOME * std::max({layers.project.row(), layers.open.row(), layers.close.row()})) {}
};

// Some rows through all of it; `rows` are those of the residual, `own` of them again and again.
void finish_some(const float* rows, long own, const float* attended, long first, long some,
                 const Behind& layers, float epsilon, float* to, const Desk& desk) {
  const long width = layers.project.outputs, hidden = layers.close.inputs;
  Pair* rounded = desk.rows.data();
  float* one = desk.one.data();
  for (long r = 0; r < some; ++r)
    round_row(attended + (first + r) * layers.project.inputs, layers.project.inputs, 1.0f,
              rounded + r * layers.project.row());
  layers.project.apply(rounded, some, to);
  for (long r = 0; r < some; ++r) {
    const float* row = rows + (first + r) % own * width;
    for (long i = 0; i < width; i += LANES)
      store(to + r * width + i, load(to + r * width + i) + load(row + i));
  }
  normalised(to, some, width, epsilon, one, rounded, layers.open.row());
  layers.open.apply(rounded, some, desk.gates.data());
  for (long r = 0; r < some; ++r) {
    const float *x = desk.gates.data() + r * layers.open.outputs, *gate = x + hidden;
    for (long i = 0; i < hidden; i += LANES) store(one + i, load(x + i) * gelu(load(gate + i)));
    round_row(one, hidden, 1.0f, rounded + r * layers.close.row());
    for (long i = 0; i < width; i += LANES)
      store(to + r * width + i,
            load(to + r * width + i) + load(layers.close.offsets.data() + i));
  }
  layers.close.add(rounded, some, to);
}

void finish(const float* rows, long own, const float* attended, long count, const Behind& layers,
            float epsilon, float* out, int threads) {
  std::vector<Desk> desks;
  for (int i = 0; i < threads; ++i) desks.emplace_back(layers);
#pragma omp parallel for num_threads(threads) schedule(static)
  for (long work = 0; work < pieces(count, SOME); ++work) {
    const long first = work * SOME, some = std::min(SOME, count - first);
    finish_some(rows, own, attended, first, some, layers, epsilon,
                out + first * layers.project.outputs, desks[omp_get_thread_num()]);
  }
}

}  // namespace

// Both return 0, or 1 where there was not enough memory. Layers side by side take the same rows.
extern "C" int ipot_half_norm_project(const float* rows, long count, const Linear* layers,
                                      long number, float epsilon, float* out, int threads) {
  return attempt(
      [&] { norm_project(rows, count, Layers(layers, number), epsilon, out, threads); });
}

extern "C" int ipot_half_finish(const float* rows, long own, const float* attended, long count,
                                const Linear* project, const Linear* open, const Linear* close,
                                float epsilon, float* out, int threads) {
  return attempt([&] {
    const Behind layers = {Layers(*project), Layers(*open), Layers(*close)};
    finish(rows, own, attended, count, layers, epsilon, out, threads);
  });
}

#endif
