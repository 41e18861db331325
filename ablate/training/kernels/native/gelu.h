// GELU by the tanh formula (Hendrycks and Gimpel 2016), as x * sigmoid(2u) with u = sqrt(2/pi) (x + 0.044715 x^3).
#pragma once

#include "lanes.h"

namespace {

constexpr float TWICE_ROOT = 1.5957691216057308f, CUBIC = 0.044715f;
// Beyond it the sigmoid is below 1e-16: a bound that lets two denominators be multiplied.
constexpr float FARTHEST = 54.0f;

inline Lanes denominator(Lanes x) {
    return 1.0f + power_of_two_within(bounded(-TWICE_ROOT * LOG2_E * (x + CUBIC * x * x * x), -FARTHEST, FARTHEST));
}

// The sigmoids of two vectors by one division, which takes as long as all the rest. A NaN spoils both.
inline void gates(Lanes one, Lanes other, Lanes* first, Lanes* second) {
    const Lanes low = denominator(one), high = denominator(other), inverse = 1.0f / (low * high);
    *first = inverse * high;
    *second = inverse * low;
}

// The slope of GELU at x, whose sigmoid is s.
inline Lanes rise(Lanes x, Lanes s) {
    return s + x * s * (1.0f - s) * (TWICE_ROOT * (1.0f + 3.0f * CUBIC * x * x));
}

}  // namespace
