// The two loops that a small GPT waits for on a CPU: causal attention, and GELU by the tanh formula.
//
// Everything is computed in float32, sixteen lanes at a time, by GCC's and Clang's vector extensions: no intrinsics, so
// it builds wherever they do. No fast-math: the same binary gives the same bits. One thread; the runs of a study lie
// side by side.
//
// Attention takes one (sequence, head) at a time. Sixteen queries are the lanes of a vector while scores and their
// softmax are computed, so no sum over lanes is ever needed; products with values and keys have the features as lanes.
// Only keys up to the block's last query are visited: a little over half of the square.

#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>

namespace {

constexpr long LANES = 16;

typedef float Lanes __attribute__((vector_size(64)));
typedef int32_t Whole __attribute__((vector_size(64)));
typedef uint32_t Bits __attribute__((vector_size(64)));
typedef uint16_t Short __attribute__((vector_size(32)));
typedef float Loose __attribute__((vector_size(64), aligned(4), may_alias));

inline Lanes load(const float* from) { return *reinterpret_cast<const Loose*>(from); }
inline void store(float* to, Lanes value) { *reinterpret_cast<Loose*>(to) = value; }
inline Lanes all(float value) { return value - Lanes{}; }

// exp by 2^n * e^r with |r| <= ln2 / 2 and a polynomial for e^r (Cephes' coefficients); about one unit in the last place.
inline Lanes exponential(Lanes x) {
    const Lanes magic = all(12582912.0f);  // 1.5 * 2^23: adding it rounds to a whole number
    Lanes n = (x * 1.44269504088896341f + magic) - magic;
    Lanes r = x - n * 0.693359375f;
    r = r - n * -2.12194440e-4f;
    Lanes p = all(1.9875691500e-4f);
    p = p * r + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    p = p * r * r + r + 1.0f;
    Lanes bounded = n < -126.0f ? all(-126.0f) : n;
    bounded = bounded > 127.0f ? all(127.0f) : bounded;
    const Whole power = (__builtin_convertvector(bounded, Whole) + 127) << 23;
    const Lanes scaled = p * (Lanes)power;  // the bits, read as a float
    return x < -87.0f ? Lanes{} : scaled;  // a NaN is not below anything and stays
}

struct Half {
    uint16_t bits;
};

inline float widen(float x) { return x; }
inline float widen(Half x) {
    uint32_t bits = static_cast<uint32_t>(x.bits) << 16;
    float wide;
    std::memcpy(&wide, &bits, 4);
    return wide;
}
inline void narrow(float x, float* to) { *to = x; }
inline void narrow(float x, Half* to) {
    uint32_t bits;
    std::memcpy(&bits, &x, 4);
    if ((bits & 0x7fffffffu) > 0x7f800000u) {
        to->bits = 0x7fc0;  // not a number
        return;
    }
    to->bits = static_cast<uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);  // to the nearest, ties to even
}

// Scratch for a few heads; rows are padded to whole lanes with zeros, so that no loop has a tail.
struct Scratch {
    float* memory;
    explicit Scratch(long floats) : memory(static_cast<float*>(std::aligned_alloc(64, (floats * 4 + 63) / 64 * 64))) {
        if (memory != nullptr) std::memset(memory, 0, floats * 4);
    }
    ~Scratch() { std::free(memory); }
};

// Heads taken together, so that memory is read and written in long stretches while their scratch stays in the cache.
constexpr long CACHED_FLOATS = 192 * 1024;

inline long together(long heads, long planes, long plane) {
    const long fitting = CACHED_FLOATS / (planes * plane);
    return fitting < 1 ? 1 : fitting < heads ? fitting : heads;
}

template <typename E>
void rows(const E* from, long stride, long time, long heads, long size, long width, long plane, float* to) {
    for (long t = 0; t < time; ++t)
        for (long h = 0; h < heads; ++h)
            for (long d = 0; d < size; ++d) to[h * plane + t * width + d] = widen(from[t * stride + h * size + d]);
}

template <typename E>
void put(const float* from, long stride, long time, long heads, long size, long width, long plane, E* to) {
    for (long t = 0; t < time; ++t)
        for (long h = 0; h < heads; ++h)
            for (long d = 0; d < size; ++d) narrow(from[h * plane + t * width + d], to + t * stride + h * size + d);
}

inline void transpose(const float* from, long time, long width, long padded, float* to) {
    for (long t = 0; t < time; ++t)
        for (long d = 0; d < width; ++d) to[d * padded + t] = from[t * width + d];
}

// out[key][lane] = sum over d of rows[key][d] * columns[d][lane], for eight keys.
inline void eight(const float* keys, long width, const float* columns, long stride, Lanes out[8]) {
    for (int j = 0; j < 8; ++j) out[j] = Lanes{};
    for (long d = 0; d < width; ++d) {
        const Lanes column = load(columns + d * stride);
#pragma GCC unroll 8
        for (int j = 0; j < 8; ++j) out[j] += keys[j * width + d] * column;
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

// One head: padded rows of queries, keys, values in; rows of outputs over the queries, and levels, out.
void head_forward(float* q, const float* k, const float* v, float* turned, float* weights, float* level, long time,
                  long padded, long width, float scale) {
    transpose(q, time, width, padded, turned);
    for (long i = 0; i < time; i += LANES) {
        const long keys = i + LANES;
        Lanes top = all(-INFINITY), sum = Lanes{};
        for (long j = 0; j < keys; j += 8) {
            Lanes score[8];
            eight(k + j * width, width, turned + i, padded, score);
            for (int n = 0; n < 8; ++n) {
                Lanes s = score[n] * scale;
                if (j + n > i) s = seen(s, j + n, i, -INFINITY);
                top = s > top ? s : top;
                store(weights + (j + n) * LANES, s);
            }
        }
        for (long j = 0; j < keys; ++j) {
            const Lanes p = exponential(load(weights + j * LANES) - top);
            sum += p;
            store(weights + j * LANES, p);
        }
        for (long d = 0; d < width; d += LANES) {
            Lanes out[16];
            gather(weights, v + d, width, keys, out);
            for (int n = 0; n < LANES; ++n) store(q + (i + n) * width + d, out[n] / sum[n]);
        }
        for (int n = 0; n < LANES; ++n) level[i + n] = top[n] + std::log(sum[n]);
    }
}

// One head: rows of queries, keys, values and of the output's gradient in; their gradients out.
void head_backward(const float* q, const float* k, const float* v, const float* g, const float* level,
                   const float* delta, float* turned_q, float* turned_g, float* weights, float* moves, float* dq,
                   float* dk, float* dv, long time, long padded, long width, float scale) {
    transpose(q, time, width, padded, turned_q);
    transpose(g, time, width, padded, turned_g);
    std::memset(dk, 0, padded * width * sizeof(float));
    std::memset(dv, 0, padded * width * sizeof(float));
    for (long i = 0; i < time; i += LANES) {
        const long keys = i + LANES;
        const Lanes mean = load(delta + i), top = load(level + i);
        for (long j = 0; j < keys; j += 8) {
            Lanes score[8], gain[8];
            eight(k + j * width, width, turned_q + i, padded, score);
            eight(v + j * width, width, turned_g + i, padded, gain);
            for (int n = 0; n < 8; ++n) {
                Lanes p = exponential(score[n] * scale - top);
                if (j + n > i) p = seen(p, j + n, i, 0.0f);
                store(weights + (j + n) * LANES, p);
                store(moves + (j + n) * LANES, p * (gain[n] - mean) * scale);
            }
        }
        for (long d = 0; d < width; d += LANES) {
            Lanes out[16];
            gather(moves, k + d, width, keys, out);
            for (int n = 0; n < LANES; ++n) store(dq + (i + n) * width + d, out[n]);
            scatter(moves, q + i * width + d, width, keys, dk + d);
            scatter(weights, g + i * width + d, width, keys, dv + d);
        }
    }
}

template <typename E>
int forward(const E* qkv, E* y, float* lse, long batch, long time, long heads, long size, float scale) {
    const long padded = (time + LANES - 1) / LANES * LANES, width = (size + LANES - 1) / LANES * LANES;
    const long inner = heads * size, stride = 3 * inner, plane = padded * width;
    const long group = together(heads, 3, plane);
    Scratch scratch((3 * group + 1) * plane + padded * (LANES + 1));
    if (scratch.memory == nullptr) return 1;
    float *q = scratch.memory, *k = q + group * plane, *v = k + group * plane, *turned = v + group * plane;
    float *weights = turned + plane, *level = weights + padded * LANES;
    for (long b = 0; b < batch; ++b)
        for (long first = 0; first < heads; first += group) {
            const long n = heads - first < group ? heads - first : group;
            const E* from = qkv + b * time * stride + first * size;
            rows(from, stride, time, n, size, width, plane, q);
            rows(from + inner, stride, time, n, size, width, plane, k);
            rows(from + 2 * inner, stride, time, n, size, width, plane, v);
            for (long h = 0; h < n; ++h) {
                const long at = h * plane;
                head_forward(q + at, k + at, v + at, turned, weights, level, time, padded, width, scale);
                std::memcpy(lse + (b * heads + first + h) * time, level, time * sizeof(float));
                // Rows beyond the text hold what their blocks left; the next sequence must find zeros there.
                std::memset(q + at + time * width, 0, (padded - time) * width * sizeof(float));
            }
            put(q, inner, time, n, size, width, plane, y + b * time * inner + first * size);
        }
    return 0;
}

template <typename E>
int backward(const E* qkv, const E* y, const float* lse, const E* dy, E* dqkv, long batch, long time, long heads,
             long size, float scale) {
    const long padded = (time + LANES - 1) / LANES * LANES, width = (size + LANES - 1) / LANES * LANES;
    const long inner = heads * size, stride = 3 * inner, plane = padded * width;
    const long group = together(heads, 7, plane);
    Scratch scratch((7 * group + 2) * plane + padded * (2 * LANES + 2));
    if (scratch.memory == nullptr) return 1;
    float* part[7];  // queries, keys, values, gradient of the output, and the three gradients asked for
    for (int i = 0; i < 7; ++i) part[i] = scratch.memory + i * group * plane;
    float *turned_q = part[6] + group * plane, *turned_g = turned_q + plane, *weights = turned_g + plane;
    float *moves = weights + padded * LANES, *level = moves + padded * LANES, *delta = level + padded;
    for (long b = 0; b < batch; ++b)
        for (long first = 0; first < heads; first += group) {
            const long n = heads - first < group ? heads - first : group;
            const long there = b * time * stride + first * size, mine = b * time * inner + first * size;
            for (int i = 0; i < 3; ++i) rows(qkv + there + i * inner, stride, time, n, size, width, plane, part[i]);
            rows(dy + mine, inner, time, n, size, width, plane, part[3]);
            for (long h = 0; h < n; ++h) {
                const long at = h * plane;
                for (long t = 0; t < time; ++t) {
                    const E* out = y + mine + t * inner + h * size;
                    const float* slope = part[3] + at + t * width;
                    float product = 0.0f;
                    for (long d = 0; d < size; ++d) product += widen(out[d]) * slope[d];
                    delta[t] = product;
                }
                std::memcpy(level, lse + (b * heads + first + h) * time, time * sizeof(float));
                head_backward(part[0] + at, part[1] + at, part[2] + at, part[3] + at, level, delta, turned_q, turned_g,
                              weights, moves, part[4] + at, part[5] + at, part[6] + at, time, padded, width, scale);
            }
            for (int i = 0; i < 3; ++i) put(part[4 + i], stride, time, n, size, width, plane, dqkv + there + i * inner);
        }
    return 0;
}

// GELU by the tanh formula (Hendrycks and Gimpel 2016), as x * sigmoid(2u) with u = sqrt(2/pi) (x + 0.044715 x^3).
constexpr float TWICE_ROOT = 1.5957691216057308f, CUBIC = 0.044715f;

inline Lanes gate(Lanes x) { return 1.0f / (1.0f + exponential(-TWICE_ROOT * (x + CUBIC * x * x * x))); }

inline Lanes widened(const float* from) { return load(from); }
inline Lanes widened(const Half* from) {
    Short bits;
    std::memcpy(&bits, from, sizeof bits);
    return (Lanes)(__builtin_convertvector(bits, Bits) << 16);
}
inline void narrowed(Lanes value, float* to) { store(to, value); }
inline void narrowed(Lanes value, Half* to) {
    const Bits bits = (Bits)value, even = (bits >> 16) & 1u;
    const Bits rounded = (bits + 0x7fffu + even) >> 16;  // to the nearest, ties to even
    const Short half = __builtin_convertvector((bits & 0x7fffffffu) > 0x7f800000u ? Bits{} + 0x7fc0u : rounded, Short);
    std::memcpy(to, &half, sizeof half);
}

template <typename E, typename Function>
void over(long count, Function function) {
    for (long i = 0; i + LANES <= count; i += LANES) function(i, LANES);
    if (count % LANES != 0) function(count - count % LANES, count % LANES);
}

template <typename E>
void gelu(const E* x, E* y, long count) {
    over<E>(count, [&](long i, long n) {
        E in[LANES] = {}, out[LANES];
        const bool whole = n == LANES;
        if (!whole) std::memcpy(in, x + i, n * sizeof(E));
        const Lanes value = widened(whole ? x + i : in);
        narrowed(value * gate(value), whole ? y + i : out);
        if (!whole) std::memcpy(y + i, out, n * sizeof(E));
    });
}

template <typename E>
void gelu_slope(const E* x, const E* dy, E* dx, long count) {
    over<E>(count, [&](long i, long n) {
        E in[LANES] = {}, slope[LANES] = {}, out[LANES];
        const bool whole = n == LANES;
        if (!whole) {
            std::memcpy(in, x + i, n * sizeof(E));
            std::memcpy(slope, dy + i, n * sizeof(E));
        }
        const Lanes value = widened(whole ? x + i : in), s = gate(value);
        const Lanes rise = TWICE_ROOT * (1.0f + 3.0f * CUBIC * value * value);
        narrowed(widened(whole ? dy + i : slope) * (s + value * s * (1.0f - s) * rise), whole ? dx + i : out);
        if (!whole) std::memcpy(dx + i, out, n * sizeof(E));
    });
}

}  // namespace

extern "C" {

int attention_forward(int half, const void* qkv, void* y, float* lse, long batch, long time, long heads, long size,
                      float scale) {
    if (half)
        return forward(static_cast<const Half*>(qkv), static_cast<Half*>(y), lse, batch, time, heads, size, scale);
    return forward(static_cast<const float*>(qkv), static_cast<float*>(y), lse, batch, time, heads, size, scale);
}

int attention_backward(int half, const void* qkv, const void* y, const float* lse, const void* dy, void* dqkv,
                       long batch, long time, long heads, long size, float scale) {
    if (half)
        return backward(static_cast<const Half*>(qkv), static_cast<const Half*>(y), lse, static_cast<const Half*>(dy),
                        static_cast<Half*>(dqkv), batch, time, heads, size, scale);
    return backward(static_cast<const float*>(qkv), static_cast<const float*>(y), lse, static_cast<const float*>(dy),
                    static_cast<float*>(dqkv), batch, time, heads, size, scale);
}

void gelu_forward(int half, const void* x, void* y, long count) {
    if (half)
        gelu(static_cast<const Half*>(x), static_cast<Half*>(y), count);
    else
        gelu(static_cast<const float*>(x), static_cast<float*>(y), count);
}

void gelu_backward(int half, const void* x, const void* dy, void* dx, long count) {
    if (half)
        gelu_slope(static_cast<const Half*>(x), static_cast<const Half*>(dy), static_cast<Half*>(dx), count);
    else
        gelu_slope(static_cast<const float*>(x), static_cast<const float*>(dy), static_cast<float*>(dx), count);
}
}
