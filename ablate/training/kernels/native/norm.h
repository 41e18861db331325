// The norm before a part of a block: LayerNorm (Ba et al. 2016), RMSNorm (Zhang and Sennrich 2019), or none.
//
// Nothing is kept for the backward pass: a row's mean and spread are taken again, which costs less than to read them.
// Widths are multiples of 16.
#pragma once

#include "lanes.h"

namespace {

struct Norm {
    int kind;  // 0: none, 1: LayerNorm, 2: RMSNorm
    const float *weight, *bias;
    float eps;
};

// Of a row: its mean, where that is taken off, and the inverse of its spread.
inline void moments(const Norm& norm, const float* x, long width, float* mean, float* inverse) {
    *mean = 0.0f;
    if (norm.kind == 1) {
        Lanes sum = Lanes{};
        for (long d = 0; d < width; d += LANES) sum += load(x + d);
        *mean = total(sum) / static_cast<float>(width);
    }
    Lanes squares = Lanes{};
    for (long d = 0; d < width; d += LANES) {
        const Lanes from = load(x + d) - *mean;
        squares += from * from;
    }
    *inverse = 1.0f / std::sqrt(total(squares) / static_cast<float>(width) + norm.eps);
}

inline void normed(const Norm& norm, const float* x, long height, long width, float* y) {
    if (norm.kind == 0) {
        std::memcpy(y, x, height * width * sizeof(float));
        return;
    }
    for (long t = 0; t < height; ++t, x += width, y += width) {
        float mean, inverse;
        moments(norm, x, width, &mean, &inverse);
        for (long d = 0; d < width; d += LANES) {
            const Lanes value = (load(x + d) - mean) * inverse * load(norm.weight + d);
            store(y + d, norm.bias == nullptr ? value : value + load(norm.bias + d));
        }
    }
}

// dx = more + the gradient by x of `normed`, whose own gradient is dy; those of weight and bias are added to what is there.
inline void normed_slope(const Norm& norm, const float* x, const float* dy, const float* more, long height, long width,
                         float* dx, float* dweight, float* dbias) {
    for (long t = 0; t < height; ++t, x += width, dy += width, more += width, dx += width) {
        if (norm.kind == 0) {
            for (long d = 0; d < width; d += LANES) store(dx + d, load(more + d) + load(dy + d));
            continue;
        }
        float mean, inverse;
        moments(norm, x, width, &mean, &inverse);
        Lanes sum = Lanes{}, along = Lanes{};
        for (long d = 0; d < width; d += LANES) {
            const Lanes value = (load(x + d) - mean) * inverse, given = load(dy + d), slope = given * load(norm.weight + d);
            sum += slope;
            along += slope * value;
            store(dweight + d, load(dweight + d) + given * value);
            if (dbias != nullptr) store(dbias + d, load(dbias + d) + given);
        }
        const float level = norm.kind == 1 ? total(sum) / static_cast<float>(width) : 0.0f;
        const float tilt = total(along) / static_cast<float>(width);
        for (long d = 0; d < width; d += LANES) {
            const Lanes value = (load(x + d) - mean) * inverse, slope = load(dy + d) * load(norm.weight + d);
            store(dx + d, load(more + d) + (slope - level - value * tilt) * inverse);
        }
    }
}

// y = x + bias, where there is one: what a part of a block is added to.
inline void residual(const float* x, const float* bias, long height, long width, float* y) {
    for (long t = 0; t < height; ++t)
        for (long d = 0; d < width; d += LANES) {
            const Lanes value = load(x + t * width + d);
            store(y + t * width + d, bias == nullptr ? value : value + load(bias + d));
        }
}

}  // namespace
