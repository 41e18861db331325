// The feed-forward part of a block, x + GELU(norm(x) U^T + a) W^T + b, and its gradients, some rows at a time: what lies
// between the two products is four times as wide as what goes in and comes out, and never leaves the cache but for
// `inner`. Widths are multiples of 16; biases may be absent (null).

#include "gelu.h"
#include "norm.h"
#include "products.h"

namespace {

// y = GELU(x) over the first rows of panels of `height` rows each.
void curve(const float* x, float* y, long rows, long height, long width) {
    for (long first = 0; first < width; first += PANEL)
        for (long t = 0; t < rows; ++t)
            for (long d = 0; d < PANEL && first + d < width; d += 2 * LANES) {
                const bool both = first + d + LANES < width;
                const long at = (first / PANEL * height + t) * PANEL + d;
                const Lanes one = load(x + at), other = both ? load(x + at + LANES) : one;
                Lanes low, high;
                gates(one, other, &low, &high);
                store(y + at, one * low);
                if (both) store(y + at + LANES, other * high);
            }
}

// GELU(x) and, in place of dy, dy * GELU'(x), whose sums over rows join `sums` where these are asked for. What will be read
// `next` floats further on comes from far: it is asked for early.
void curve_slope(const float* x, float* y, float* dy, float* sums, long rows, long height, long width, long next) {
    for (long first = 0; first < width; first += PANEL)
        for (long d = 0; d < PANEL && first + d < width; d += 2 * LANES) {
            const bool both = first + d + LANES < width;
            Lanes sum = Lanes{}, more = Lanes{};
            for (long t = 0; t < rows; ++t) {
                const long at = (first / PANEL * height + t) * PANEL + d;
                __builtin_prefetch(x + at + next, 0, 2);
                __builtin_prefetch(x + at + next + LANES, 0, 2);
                const Lanes one = load(x + at), other = both ? load(x + at + LANES) : one;
                Lanes low, high;
                gates(one, other, &low, &high);
                store(y + at, one * low);
                const Lanes slope = load(dy + at) * rise(one, low);
                store(dy + at, slope);
                sum += slope;
                if (!both) continue;
                store(y + at + LANES, other * high);
                const Lanes beside = load(dy + at + LANES) * rise(other, high);
                store(dy + at + LANES, beside);
                more += beside;
            }
            if (sums == nullptr) continue;
            store(sums + first + d, load(sums + first + d) + sum);
            if (both) store(sums + first + d + LANES, load(sums + first + d + LANES) + more);
        }
}

}  // namespace

extern "C" {

// `inner` takes what GELU is taken of, for the backward pass: 96 x 64 floats for each panel of each 96 rows, or null.
int feed_forward(const float* x, const float* norm_weight, const float* norm_bias, const float* up, const float* up_bias,
                 const float* down, const float* down_bias, float* y, float* inner, long height, long width, long wide,
                 int kind, float eps) {
    const Norm norm = {kind, norm_weight, norm_bias, eps};
    const long block = panels(wide) * PANEL * TOGETHER, up_floats = panels(wide) * PANEL * width;
    const long down_floats = panels(width) * PANEL * wide;
    Scratch scratch(up_floats + down_floats + 2 * block + TOGETHER * width);
    if (scratch.memory == nullptr) return 1;
    float *up_packed = scratch.memory, *down_packed = up_packed + up_floats, *bent = down_packed + down_floats;
    float *given = bent + block, *straight = given + TOGETHER * width;
    pack_turned(up, wide, width, up_packed);
    pack_turned(down, width, wide, down_packed);
    for (long t = 0; t < height; t += TOGETHER) {
        const long rows = height - t < TOGETHER ? height - t : TOGETHER;
        const float* from = x + t * width;
        float* to = y + t * width;
        if (inner != nullptr) straight = inner + t / TOGETHER * block;
        normed(norm, from, rows, width, given);
        if (up_bias == nullptr)
            product<From::nothing>(as_rows(given, width), rows, width, up_packed, PANEL * width, wide,
                                   to_panels(straight, TOGETHER));
        else
            product<From::bias>(as_rows(given, width), rows, width, up_packed, PANEL * width, wide,
                                to_panels(straight, TOGETHER), up_bias);
        curve(straight, bent, rows, TOGETHER, wide);
        residual(from, down_bias, rows, width, to);
        product<From::goal>(as_panels(bent, TOGETHER), rows, wide, down_packed, PANEL * wide, width, to_rows(to, width));
    }
    return 0;
}

// Gradients of weights and biases come as zeros.
int feed_backward(const float* x, const float* norm_weight, const float* norm_bias, const float* up, const float* down,
                  const float* inner, const float* dy, float* dx, float* dnorm_weight, float* dnorm_bias, float* dup,
                  float* dup_bias, float* ddown, float* ddown_bias, long height, long width, long wide, int kind,
                  float eps) {
    const Norm norm = {kind, norm_weight, norm_bias, eps};
    const long block = panels(wide) * PANEL * TOGETHER, up_floats = panels(width) * PANEL * wide;
    const long down_floats = panels(wide) * PANEL * width;
    Scratch scratch(up_floats + down_floats + 2 * block + 2 * TOGETHER * width + slope_floats(width));
    if (scratch.memory == nullptr) return 1;
    float *up_packed = scratch.memory, *down_packed = up_packed + up_floats, *bent = down_packed + down_floats;
    float *slope = bent + block, *given = slope + block, *given_slope = given + TOGETHER * width;
    float* packed = given_slope + TOGETHER * width;
    pack(up, wide, width, up_packed);
    pack(down, width, wide, down_packed);
    for (long t = 0; t < height; t += TOGETHER) {
        const long rows = height - t < TOGETHER ? height - t : TOGETHER;
        const float *from = x + t * width, *out = dy + t * width;
        product<From::nothing>(as_rows(out, width), rows, width, down_packed, PANEL * width, wide,
                               to_panels(slope, TOGETHER));
        curve_slope(inner + t / TOGETHER * block, bent, slope, dup_bias, rows, TOGETHER, wide, block);
        product<From::goal>(as_columns(out, width), width, rows, bent, PANEL * TOGETHER, wide, to_rows(ddown, wide));
        if (ddown_bias != nullptr) add_up(out, rows, width, ddown_bias);
        normed(norm, from, rows, width, given);
        pack(given, rows, width, packed);
        for (long first = 0; first < wide; first += PANEL)
            product<From::goal>(as_columns(slope + first * TOGETHER, PANEL), wide - first < PANEL ? wide - first : PANEL,
                                rows, packed, PANEL * rows, width, to_rows(dup + first * width, width));
        product<From::nothing>(as_panels(slope, TOGETHER), rows, wide, up_packed, PANEL * wide, width,
                               to_rows(given_slope, width));
        normed_slope(norm, from, given_slope, out, rows, width, dx + t * width, dnorm_weight, dnorm_bias);
    }
    return 0;
}
}
