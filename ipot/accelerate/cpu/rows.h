// Rows of several samples and heads: how they are rearranged, shared out and summed over.
#pragma once

#include <new>
#include <stdexcept>
#include <vector>

#include <omp.h>

#include "tiles.h"

namespace rows {

using namespace tiles;

constexpr long KEYS = 64;         // of a block
constexpr long SHARE = 1024;      // rows of a piece of work: the longer side is shared out
constexpr long MOST_SHARES = 64;  // beyond, shares are larger: each leaves a part to be added up
constexpr long FEWEST_SHARES = 8;  // that cores may want ...
constexpr long MOST_PARTS = 1L << 22;  // ... or more, up to so many numbers in all parts together
constexpr float LOG2_E = 1.4426950408889634f, LN_2 = 0.6931471805599453f;
constexpr float NONE = -1e30f;    // a score lower than all

static_assert(SHARE % PANEL == 0, "a share of queries is a whole number of panels");

// How many rows are in a piece of work that leaves a part of so many numbers. It depends on sizes
// alone, not on threads, and so do sums.
inline long share_of(long count, long part) {
  const long most = std::clamp(MOST_PARTS / std::max(1L, part), FEWEST_SHARES, MOST_SHARES);
  return std::max(SHARE, padded((count + most - 1) / most, PANEL));
}

inline long pieces(long count, long share) { return std::max(1L, (count + share - 1) / share); }

// Channels lie side by side, rows and samples at any distance; heads side by side in the channels.
struct Rows {
  const float* data;
  long sample, row;

  const float* at(long b, long n, long channel) const {
    return data + b * sample + n * row + channel;
  }
};

struct Place {
  float* data;
  long sample, row;

  float* at(long b, long n, long channel) const { return data + b * sample + n * row + channel; }
};

struct Shape {
  long samples, heads, count, width;

  long panels() const { return (count + PANEL - 1) / PANEL; }
};

// Rows transposed panel by panel: (samples, heads, panels, width, PANEL), with zeros behind them.
inline std::vector<float> transposed(Rows from, Shape shape, float factor, int threads) {
  const long panels = shape.panels(), width = shape.width;
  std::vector<float> packed(shape.samples * shape.heads * panels * width * PANEL);
#pragma omp parallel for num_threads(threads) schedule(static)
  for (long work = 0; work < shape.samples * shape.heads * panels; ++work) {
    const long first = work % panels * PANEL, head = work / panels % shape.heads;
    const float* row = from.at(work / panels / shape.heads, first, head * width);
    float* to = packed.data() + work * width * PANEL;
    for (long j = 0; j < std::min<long>(PANEL, shape.count - first); ++j, row += from.row)
      for (long i = 0; i < width; ++i) to[i * PANEL + j] = factor * row[i];
  }
  return packed;
}

// The same rows as they are: (samples, heads, panels * PANEL, width to whole vectors).
inline std::vector<float> filled(Rows from, Shape shape, int threads) {
  const long count = shape.panels() * PANEL, wide = padded(shape.width, LANES);
  std::vector<float> packed(shape.samples * shape.heads * count * wide);
#pragma omp parallel for num_threads(threads) schedule(static)
  for (long work = 0; work < shape.samples * shape.heads; ++work) {
    const float* row = from.at(work / shape.heads, 0, work % shape.heads * shape.width);
    float* to = packed.data() + work * count * wide;
    for (long j = 0; j < shape.count; ++j)
      std::copy_n(row + j * from.row, shape.width, to + j * wide);
  }
  return packed;
}

// One number for each row, (samples, heads, count) to (samples, heads, panels * PANEL).
inline std::vector<float> widened(const float* numbers, Shape shape) {
  const long wide = shape.panels() * PANEL;
  std::vector<float> packed(shape.samples * shape.heads * wide);
  for (long at = 0; at < shape.samples * shape.heads; ++at)
    std::copy_n(numbers + at * shape.count, shape.count, packed.data() + at * wide);
  return packed;
}

// Sums over parts that lie one after the other, in their order: results do not depend on chance.
inline void add_up(const std::vector<float>& parts, long count, long size, float* to, int threads) {
#pragma omp parallel for num_threads(threads) schedule(static)
  for (long at = 0; at < size; ++at) {
    float total = 0.0f;
    for (long part = 0; part < count; ++part) total += parts[part * size + at];
    to[at] = total;
  }
}

// The same into rows at any distance; parts are (samples, count, width).
inline void add_up(const std::vector<float>& parts, long number, Shape shape, Place to,
                   int threads) {
  const long size = shape.samples * shape.count * shape.width;
#pragma omp parallel for num_threads(threads) schedule(static)
  for (long row = 0; row < shape.samples * shape.count; ++row) {
    float* place = to.at(row / shape.count, row % shape.count, 0);
    const float* part = parts.data() + row * shape.width;
    std::copy_n(part, shape.width, place);
    for (long s = 1; s < number; ++s)
      for (long i = 0; i < shape.width; ++i) place[i] += part[s * size + i];
  }
}

// Take the mean from a row and divide it by its deviation.
inline void normalise(float* row, long width, float epsilon) {
  float total = 0.0f, squares = 0.0f;
  Vec many{};
  long j = 0;
  for (; j + LANES <= width; j += LANES) many += load(row + j);
  for (; j < width; ++j) total += row[j];
  const float mean = (total + sum(many)) / width;
  many = Vec{};
  for (j = 0; j + LANES <= width; j += LANES) {
    const Vec x = load(row + j) - mean;
    many += x * x;
    store(row + j, x);
  }
  for (; j < width; ++j) {
    row[j] -= mean;
    squares += row[j] * row[j];
  }
  const float scale = 1.0f / std::sqrt((squares + sum(many)) / width + epsilon);
  for (j = 0; j + LANES <= width; j += LANES) store(row + j, load(row + j) * scale);
  for (; j < width; ++j) row[j] *= scale;
}

// Room for each thread, taken before they start: one that runs out of memory could tell nobody.
template <typename Room>
class Rooms {
  std::vector<Room> rooms;

 public:
  Rooms(int threads, const Room& room) : rooms(threads, room) {}
  Room& own() { return rooms[omp_get_thread_num()]; }
};

// What a call returns: whether there was memory enough for it.
template <typename Work>
int attempt(Work work) {
  try {
    work();
    return 0;
  } catch (const std::bad_alloc&) {
    return 1;
  } catch (const std::length_error&) {  // more than any memory has
    return 1;
  }
}

// The running softmax of a panel of queries: sums (width, PANEL) of what is weighted, the sums of
// the weights, the largest scores.
struct Running {
  float *sums, *total, *top;
  long width;

  Running(float* room, long width)
      : sums(room), total(room + width * PANEL), top(total + PANEL), width(width) {}

  static long size(long width) { return (width + 2) * PANEL; }

  void start() {
    std::fill(sums, top, 0.0f);
    std::fill(top, top + PANEL, NONE);
  }

  // Make the largest scores `most` instead of those before; weights so far shrink accordingly.
  void raise(int v, Vec most) {
    const Vec shrink = exp2(load(top + v) - most);
    store(top + v, most);
    store(total + v, load(total + v) * shrink);
    for (long i = 0; i < width; ++i)
      store(sums + i * PANEL + v, load(sums + i * PANEL + v) * shrink);
  }

  float inverse(long j) const { return total[j] == 0.0f ? 0.0f : 1.0f / total[j]; }
  float log(long j) const { return (top[j] + std::log2(total[j])) * LN_2; }
};

}  // namespace rows
