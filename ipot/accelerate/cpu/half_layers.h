// Linear layers with products in bf16: how their weights are packed, and rows go through them.
#pragma once

#include "halves.h"

#if defined(IPOT_HALVES)

namespace halves {

// The weights of some layers side by side in pairs, (pairs of inputs, outputs), with those of the
// norm before them in it; offsets are what they add to rows. Outputs fill whole vectors.
struct Layers {
  long depth, inputs, outputs;
  Room<Pair> weights;
  Room<float> offsets;

  Layers(const Linear* layers, long number)
      : depth(pairs_of(layers->inputs)),
        inputs(layers->inputs),
        outputs(wide(layers, number)),
        weights(depth * outputs),
        offsets(outputs) {
    long first = 0;
    for (long i = 0; i < number; ++i) first += pack(layers[i], first);
  }

  explicit Layers(const Linear& layer) : Layers(&layer, 1) {}

  // Pairs of a row that comes in, which is written by whole vectors.
  long row() const { return padded(depth, LANES); }

  // to = offsets + from @ weights, or without the offsets added to what is there.
  void apply(const Pair* from, long count, float* to) const {
    set_product(count, outputs, depth, from, row(), weights.data(), outputs, offsets.data(), to,
                outputs);
  }

  void add(const Pair* from, long count, float* to) const {
    add_product(count, outputs, depth, from, row(), weights.data(), outputs, to, outputs);
  }

 private:
  static long wide(const Linear* layers, long number) {
    long outputs = 0;
    for (long i = 0; i < number; ++i) outputs += layers[i].outputs;
    return padded(outputs, LANES);
  }

  // One layer, LANES outputs at a time; after the last of them are zeros.
  long pack(const Linear& layer, long first) {
    const long inputs = layer.inputs, line = padded(depth, LANES);
    std::vector<float> scaled(inputs);
    std::vector<Pair> rows(LANES * line);
    for (long o = 0; o < layer.outputs; o += LANES) {
      const long some = std::min<long>(LANES, layer.outputs - o);
      std::fill(rows.begin(), rows.end(), 0);
      for (long j = 0; j < some; ++j) {
        const float* weight = layer.weight + (o + j) * layer.row;
        float offset = layer.bias ? layer.bias[o + j] : 0.0f;
        if (layer.scale) {
          for (long i = 0; i < inputs; ++i) {
            scaled[i] = weight[i] * layer.scale[i];
            if (layer.shift) offset += weight[i] * layer.shift[i];
          }
          weight = scaled.data();
        }
        round_row(weight, inputs, 1.0f, &rows[j * line]);
        offsets.data()[first + o + j] = offset;
      }
      const long end = std::min<long>(LANES, outputs - first - o);  // zeros after the last layer
      for (long j = some; j < end; ++j) offsets.data()[first + o + j] = 0.0f;
      for (long i = 0; i < depth; ++i)
        for (long j = 0; j < end; ++j)
          weights.data()[i * outputs + first + o + j] = rows[j * line + i];
    }
    return layer.outputs;
  }
};

}  // namespace halves

#endif
