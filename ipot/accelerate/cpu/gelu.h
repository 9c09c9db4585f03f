// The activation of a gate.
#pragma once

#include "calls.h"

namespace rows {

// The error function, off by no more than rounding (Abramowitz and Stegun, 7.1.26).
inline Vec erf(Vec x) {
  const Vec size = x < 0.0f ? -x : x;
  const Vec t = 1.0f / (1.0f + 0.3275911f * size);
  Vec value = all(1.061405429f);
  value = value * t - 1.453152027f;
  value = value * t + 1.421413741f;
  value = value * t - 0.284496736f;
  value = value * t + 0.254829592f;
  value = 1.0f - value * t * exp2(size * size * -LOG2_E);
  return x < 0.0f ? -value : value;
}

inline Vec gelu(Vec x) { return 0.5f * x * (1.0f + erf(x * 0.70710678f)); }

}  // namespace rows
