// Position features of one point, and the sums of a row of them.
#pragma once

#include "calls.h"

namespace rows {

constexpr float FAR = 4194304.0f;  // 2^22

// The sine and cosine of pi times x.
inline void turn(Vec x, Vec& sine, Vec& cosine) {
  const Vec shift = all(12582912.0f);  // 1.5 * 2^23: added to a number it leaves the integer
  const Vec moved = x + shift;
  // So far away that all numbers are whole, nothing is left; of infinity, nothing that is a number.
  const Vec rest = (x > FAR) | (x < -FAR) ? x * 0.0f : x - (moved - shift), square = rest * rest;
  // Polynomials that are off by less than rounding, for half a half turn either way.
  Vec s = all(0.077657660f);
  s = s * square - 0.598291286f;
  s = s * square + 2.550077523f;
  s = s * square - 5.167710084f;
  s = s * square + 3.141592640f;
  Vec c = all(-0.024396324f);
  c = c * square + 0.234937314f;
  c = c * square - 1.335212003f;
  c = c * square + 4.058709160f;
  c = c * square - 4.934802137f;
  c = c * square + 1.0f;
  // An odd number of half turns changes the sign of both.
  const Bits sign = reinterpret_cast<Bits>(moved) << 31;
  sine = reinterpret_cast<Vec>(reinterpret_cast<Bits>(s * rest) ^ sign);
  cosine = reinterpret_cast<Vec>(reinterpret_cast<Bits>(c) ^ sign);
}

inline void write_features(const Features& f, const float* point, float* to) {
  constexpr long MOST = 16;
  float x[MOST];
  for (long d = 0; d < f.dimensions; ++d) x[d] = (point[d] - f.centre[d]) / f.radius[d];
  for (long i = 0; i < f.raws; ++i) to[i] = x[f.raw[i]];
  float *sines = to + f.raws, *cosines = sines + f.phases;
  for (long k = 0; k < f.phases; k += LANES) {
    const long real = std::min<long>(LANES, f.phases - k);
    float rest[3][LANES] = {};
    Vec angle{}, sine, cosine;
    for (long d = 0; d < f.dimensions; ++d) {
      const float* row = f.matrix + d * f.phases + k;
      if (real < LANES) {
        std::copy_n(row, real, rest[0]);
        row = rest[0];
      }
      angle += all(x[d]) * load(row);
    }
    turn(angle, sine, cosine);
    if (real == LANES) {
      store(sines + k, sine);
      store(cosines + k, cosine);
    } else {
      store(rest[1], sine);
      store(rest[2], cosine);
      std::copy_n(rest[1], real, sines + k);
      std::copy_n(rest[2], real, cosines + k);
    }
  }
}

// The sum of a row, and of its squares.
inline void add_row(const float* row, long width, float* totals) {
  Vec total{}, squares{};
  for (long j = 0; j < width; j += LANES) {
    const Vec x = load(row + j);
    total += x;
    squares += x * x;
  }
  totals[0] = sum(total);
  totals[1] = sum(squares);
}

}  // namespace rows
