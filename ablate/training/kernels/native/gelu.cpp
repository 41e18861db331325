// GELU of x + bias entry by entry, and its gradients.

#include "gelu.h"

namespace {

template <typename E>
inline Lanes shifted(const E* x, const float* bias, long count) {
    const Lanes value = some(x, count);
    return bias == nullptr ? value : value + some(bias, count);
}

template <typename E>
void forward(const E* x, const float* bias, E* y, long height, long width) {
    for (long t = 0; t < height; ++t)
        for (long d = 0; d < width; d += 2 * LANES) {
            const long left = width - d, over = left > LANES ? left - LANES : 0, at = t * width + d;
            const Lanes one = shifted(x + at, bias == nullptr ? nullptr : bias + d, left);
            const Lanes other = over ? shifted(x + at + LANES, bias == nullptr ? nullptr : bias + d + LANES, over) : one;
            Lanes first, second;
            gates(one, other, &first, &second);
            give(one * first, y + at, left);
            if (over) give(other * second, y + at + LANES, over);
        }
}

constexpr long SUMMED = 64;  // rows of a bias' gradient summed before they join the others

template <typename E>
int backward(const E* x, const float* bias, const E* dy, E* dx, float* dbias, long height, long width) {
    const long padded = (width + LANES - 1) / LANES * LANES;
    Scratch scratch(padded);
    if (scratch.memory == nullptr) return 1;
    float* sums = scratch.memory;
    clear(sums, padded);
    for (long t = 0; t < height; ++t) {
        for (long d = 0; d < width; d += 2 * LANES) {
            const long left = width - d, over = left > LANES ? left - LANES : 0, at = t * width + d;
            const Lanes one = shifted(x + at, bias == nullptr ? nullptr : bias + d, left);
            const Lanes other = over ? shifted(x + at + LANES, bias == nullptr ? nullptr : bias + d + LANES, over) : one;
            Lanes first, second;
            gates(one, other, &first, &second);
            first = some(dy + at, left) * rise(one, first);
            give(first, dx + at, left);
            if (bias != nullptr) store(sums + d, load(sums + d) + first);
            if (!over) continue;
            second = some(dy + at + LANES, over) * rise(other, second);
            give(second, dx + at + LANES, over);
            if (bias != nullptr) store(sums + d + LANES, load(sums + d + LANES) + second);
        }
        if (bias != nullptr && (t % SUMMED == SUMMED - 1 || t == height - 1))
            for (long d = 0; d < width; ++d) {
                dbias[d] += sums[d];
                sums[d] = 0.0f;
            }
    }
    return 0;
}

}  // namespace

// `half`: bfloat16 rather than float32. A bias is float32, and may be absent (null), with its gradient.
extern "C" {

int gelu_forward(int half, const void* x, const float* bias, void* y, long height, long width) {
    if (half)
        forward(static_cast<const Half*>(x), bias, static_cast<Half*>(y), height, width);
    else
        forward(static_cast<const float*>(x), bias, static_cast<float*>(y), height, width);
    return 0;
}

int gelu_backward(int half, const void* x, const float* bias, const void* dy, void* dx, float* dbias, long height,
                  long width) {
    if (half)
        return backward(static_cast<const Half*>(x), bias, static_cast<const Half*>(dy), static_cast<Half*>(dx), dbias,
                        height, width);
    return backward(static_cast<const float*>(x), bias, static_cast<const float*>(dy), static_cast<float*>(dx), dbias,
                    height, width);
}
}
