// Causal attention and its gradient, all in float32.
//
// It takes one (sequence, head) at a time. Sixteen queries are the lanes of a vector while scores and their
// softmax are computed, so no sum over lanes is ever needed; products with values and keys have the features as lanes.
// Only keys up to the block's last query are visited: a little over half of the square.

#pragma once

#include "lanes.h"

namespace {

// Heads taken together, so that memory is read and written in long stretches while their scratch stays in the cache.
constexpr long CACHED_FLOATS = 192 * 1024;

inline long together(long heads, long planes, long plane) {
    const long fitting = CACHED_FLOATS / (planes * plane);
    return fitting < 1 ? 1 : fitting < heads ? fitting : heads;
}

// Rows of some heads of one sequence into the scratch, a bias added where there is one.
template <typename E>
void rows(const E* from, const float* bias, long stride, long time, long heads, long size, long width, long plane,
          float* to) {
    for (long t = 0; t < time; ++t)
        for (long h = 0; h < heads; ++h)
            for (long d = 0; d < size; d += LANES) {
                Lanes value = some(from + t * stride + h * size + d, size - d);
                if (bias != nullptr) value += some(bias + h * size + d, size - d);
                store(to + h * plane + t * width + d, value);
            }
}

template <typename E>
void put(const float* from, long stride, long time, long heads, long size, long width, long plane, E* to) {
    for (long t = 0; t < time; ++t)
        for (long h = 0; h < heads; ++h)
            for (long d = 0; d < size; d += LANES)
                give(load(from + h * plane + t * width + d), to + t * stride + h * size + d, size - d);
}

// bias[h * size + d] += the sum over rows. One sequence at a time, so that no long sum loses its small terms.
inline void fold(const float* from, long time, long heads, long size, long width, long plane, float* bias) {
    for (long h = 0; h < heads; ++h)
        for (long d = 0; d < width; d += LANES) {
            Lanes sum = Lanes{};
            for (long t = 0; t < time; ++t) sum += load(from + h * plane + t * width + d);
            for (long f = 0; f < LANES && d + f < size; ++f) bias[h * size + d + f] += sum[f];
        }
}

inline void transpose(const float* from, long width, long padded, float* to) {
    for (long t = 0; t < padded; t += LANES)
        for (long d = 0; d < width; d += LANES) {
            Lanes square[LANES];
#pragma GCC unroll 16
            for (int i = 0; i < LANES; ++i) square[i] = load(from + (t + i) * width + d);
            turn(square);
#pragma GCC unroll 16
            for (int i = 0; i < LANES; ++i) store(to + (d + i) * padded + t, square[i]);
        }
}

// out[key][lane] = sum over d of rows[key][d] * columns[d][lane], for sixteen keys.
inline void sixteen(const float* keys, long width, const float* columns, long stride, Lanes out[LANES]) {
#pragma GCC unroll 16
    for (int j = 0; j < LANES; ++j) out[j] = Lanes{};
    for (long d = 0; d < width; ++d) {
        const Lanes column = load(columns + d * stride);
#pragma GCC unroll 16
        for (int j = 0; j < LANES; ++j) out[j] += keys[j * width + d] * column;
    }
}

// sum over keys of weights[key][query] * rows[key][d..d+16], for sixteen queries.
inline void gather(const float* weights, const float* values, long width, long keys, Lanes out[16]) {
#pragma GCC unroll 16
    for (int i = 0; i < 16; ++i) out[i] = Lanes{};
    for (long j = 0; j < keys; ++j) {
        const Lanes value = load(values + j * width);
#pragma GCC unroll 16
        for (int i = 0; i < 16; ++i) out[i] += weights[j * LANES + i] * value;
    }
}

// to[key][d..d+16] += sum over sixteen queries of weights[key][query] * rows[query][d..d+16].
inline void scatter(const float* weights, const float* queries, long width, long keys, float* to) {
    Lanes row[16];
#pragma GCC unroll 16
    for (int i = 0; i < 16; ++i) row[i] = load(queries + i * width);
    for (long j = 0; j < keys; ++j) {
        Lanes first = load(to + j * width), second = Lanes{};
#pragma GCC unroll 8
        for (int i = 0; i < 16; i += 2) {
            first += weights[j * LANES + i] * row[i];
            second += weights[j * LANES + i + 1] * row[i + 1];
        }
        store(to + j * width, first + second);
    }
}

// Lane numbers, to tell which of sixteen queries from `first_query` may see a key.
const Whole NUMBERS = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};

inline Lanes seen(Lanes value, long key, long first_query, float otherwise) {
    return NUMBERS >= static_cast<int32_t>(key - first_query) ? value : all(otherwise);
}

// One head: padded rows of queries, keys, values in; rows of outputs over the queries out, and of each query its highest
// score (to the base 2).
void head_forward(float* q, const float* k, const float* v, float* turned, float* weights, float* highest, long padded,
                  long width, float scale) {
    transpose(q, width, padded, turned);
    for (long i = 0; i < padded; i += LANES) {
        const long keys = i + LANES;
        Lanes top = all(-INFINITY), sum = Lanes{};
        for (long j = 0; j < keys; j += LANES) {
            Lanes score[LANES];
            sixteen(k + j * width, width, turned + i, padded, score);
            for (int n = 0; n < LANES; ++n) {
                Lanes s = score[n] * (scale * LOG2_E);
                if (j == i) s = seen(s, j + n, i, -INFINITY);
                top = s > top ? s : top;
                store(weights + (j + n) * LANES, s);
            }
        }
        for (long j = 0; j < keys; ++j) {
            Lanes p = power_of_two(load(weights + j * LANES) - top);
            if (j >= i) p = seen(p, j, i, 0.0f);
            sum += p;
            store(weights + j * LANES, p);
        }
        const Lanes share = 1.0f / sum;
        store(highest + i, top);
        for (long d = 0; d < width; d += LANES) {
            Lanes out[LANES];
            gather(weights, v + d, width, keys, out);
            for (int n = 0; n < LANES; ++n) store(q + (i + n) * width + d, out[n] * share[n]);
        }
    }
}

// One head: rows of queries, keys, values and of the output's gradient in; their gradients out. Denominators are taken
// again with the weights: from those of the forward pass, which were rounded otherwise, weights would not sum to one.
void head_backward(const float* q, const float* k, const float* v, const float* g, const float* highest,
                   float* turned_q, float* turned_g, float* weights, float* moves, float* dq,
                   float* dk, float* dv, long padded, long width, float scale) {
    transpose(q, width, padded, turned_q);
    transpose(g, width, padded, turned_g);
    std::memset(dk, 0, padded * width * sizeof(float));
    std::memset(dv, 0, padded * width * sizeof(float));
    for (long i = 0; i < padded; i += LANES) {
        const long keys = i + LANES;
        const Lanes top = load(highest + i);
        Lanes sum = Lanes{}, mean = Lanes{};  // of the weights, and of what the output gains by each key
        for (long j = 0; j < keys; j += LANES) {
            Lanes score[LANES], gain[LANES];
            sixteen(k + j * width, width, turned_q + i, padded, score);
            sixteen(v + j * width, width, turned_g + i, padded, gain);
            for (int n = 0; n < LANES; ++n) {
                Lanes p = power_of_two(score[n] * (scale * LOG2_E) - top);
                if (j == i) p = seen(p, j + n, i, 0.0f);
                sum += p;
                mean += p * gain[n];
                store(weights + (j + n) * LANES, p);
                store(moves + (j + n) * LANES, gain[n]);
            }
        }
        const Lanes share = 1.0f / sum;
        mean *= share;
        for (long j = 0; j < keys; ++j) {
            const Lanes p = load(weights + j * LANES) * share;
            store(weights + j * LANES, p);
            store(moves + j * LANES, p * (load(moves + j * LANES) - mean) * scale);
        }
        for (long d = 0; d < width; d += LANES) {
            Lanes out[LANES];
            gather(moves, k + d, width, keys, out);
            for (int n = 0; n < LANES; ++n) store(dq + (i + n) * width + d, out[n]);
            scatter(moves, q + i * width + d, width, keys, dk + d);
            scatter(weights, g + i * width + d, width, keys, dv + d);
        }
    }
}

// Shape of the attention of one sequence, and the scratch it needs.
struct Heads {
    long time, heads, size, padded, width, inner, plane;
    float scale;
    Heads(long time, long heads, long size, float scale)
        : time(time),
          heads(heads),
          size(size),
          padded((time + LANES - 1) / LANES * LANES),
          width((size + LANES - 1) / LANES * LANES),
          inner(heads * size),
          plane(padded * width),
          scale(scale) {}
    long forward_group() const { return together(heads, 3, plane); }
    long backward_group() const { return together(heads, 7, plane); }
    long forward_floats() const { return (3 * forward_group() + 1) * plane + padded * (LANES + 1); }
    long backward_floats() const { return (7 * backward_group() + 2) * plane + padded * (2 * LANES + 1); }
};

// Some sequences. The scratch comes as zeros, or as an earlier call of the same shape has left it.
template <typename E>
void attend(const Heads& of, const E* qkv, const float* bias, E* y, float* levels, long batch, float* scratch) {
    const auto [time, heads, size, padded, width, inner, plane, scale] = of;
    const long stride = 3 * inner, group = of.forward_group();
    float *q = scratch, *k = q + group * plane, *v = k + group * plane, *turned = v + group * plane;
    float *weights = turned + plane, *highest = weights + padded * LANES;
    for (long b = 0; b < batch; ++b)
        for (long first = 0; first < heads; first += group) {
            const long n = heads - first < group ? heads - first : group;
            const E* from = qkv + b * time * stride + first * size;
            float* parts[3] = {q, k, v};
            for (int i = 0; i < 3; ++i) {
                const float* added = bias == nullptr ? nullptr : bias + i * inner + first * size;
                rows(from + i * inner, added, stride, time, n, size, width, plane, parts[i]);
            }
            for (long h = 0; h < n; ++h) {
                const long at = h * plane;
                head_forward(q + at, k + at, v + at, turned, weights, highest, padded, width, scale);
                std::memcpy(levels + (b * heads + first + h) * time, highest, time * sizeof(float));
                // Rows beyond the text hold what their blocks left; the next sequence must find zeros there.
                std::memset(q + at + time * width, 0, (padded - time) * width * sizeof(float));
            }
            put(q, inner, time, n, size, width, plane, y + b * time * inner + first * size);
        }
}

template <typename E>
void attend_slope(const Heads& of, const E* qkv, const float* bias, const float* levels, const E* dy, E* dqkv,
                  float* dbias, long batch, float* scratch) {
    const auto [time, heads, size, padded, width, inner, plane, scale] = of;
    const long stride = 3 * inner, group = of.backward_group();
    float* part[7];  // queries, keys, values, gradient of the output, and the three gradients asked for
    for (int i = 0; i < 7; ++i) part[i] = scratch + i * group * plane;
    float *turned_q = part[6] + group * plane, *turned_g = turned_q + plane, *weights = turned_g + plane;
    float *moves = weights + padded * LANES, *highest = moves + padded * LANES;
    for (long b = 0; b < batch; ++b)
        for (long first = 0; first < heads; first += group) {
            const long n = heads - first < group ? heads - first : group;
            const long there = b * time * stride + first * size, mine = b * time * inner + first * size;
            for (int i = 0; i < 3; ++i) {
                const float* added = bias == nullptr ? nullptr : bias + i * inner + first * size;
                rows(qkv + there + i * inner, added, stride, time, n, size, width, plane, part[i]);
            }
            rows<E>(dy + mine, nullptr, inner, time, n, size, width, plane, part[3]);
            for (long h = 0; h < n; ++h) {
                const long at = h * plane;
                std::memcpy(highest, levels + (b * heads + first + h) * time, time * sizeof(float));
                head_backward(part[0] + at, part[1] + at, part[2] + at, part[3] + at, highest, turned_q,
                              turned_g, weights, moves, part[4] + at, part[5] + at, part[6] + at, padded, width, scale);
            }
            for (int i = 0; i < 3; ++i) {
                put(part[4 + i], stride, time, n, size, width, plane, dqkv + there + i * inner);
                if (dbias != nullptr) fold(part[4 + i], time, n, size, width, plane, dbias + i * inner + first * size);
            }
        }
}

}  // namespace
