// Sixteen float32 at a time, by GCC's and Clang's vector extensions: no intrinsics, so it builds wherever they do.
//
// No fast-math: the same binary gives the same bits. One thread; the runs of a study lie side by side.
#pragma once

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
inline Lanes bounded(Lanes value, float least, float most) {  // a NaN is neither below nor above anything and stays
    const Lanes lifted = value < least ? all(least) : value;
    return lifted > most ? all(most) : lifted;
}

constexpr float LOG2_E = 1.44269504088896341f;

// 2^t for -126 <= t <= 126, as 2^n * 2^r with n whole and |r| <= 1/2. The polynomial has the smallest relative error of
// its degree, 2e-9; the result errs by about a unit in the last place.
inline Lanes power_of_two_within(Lanes t) {
    const Lanes moved = t + 12582912.0f;  // 1.5 * 2^23: the sum is rounded to a whole number, which its last bits hold
    const Lanes r = t - (moved - 12582912.0f);
    Lanes p = all(1.5353361959569156e-4f);
    p = p * r + 1.3398875016719103e-3f;
    p = p * r + 9.61843691766262e-3f;
    p = p * r + 5.5503323674201965e-2f;
    p = p * r + 2.4022647738456726e-1f;
    p = p * r + 6.931471824645996e-1f;
    p = p * r + 1.0f;
    const Lanes found = (Lanes)((Whole)p + ((Whole)moved << 23));
    return t == t ? found : t;
}

// What is asked beyond is taken at the bound.
inline Lanes power_of_two(Lanes t) { return power_of_two_within(bounded(t, -126.0f, 126.0f)); }

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

// Sixteen entries of a row; fewer at its end, zeros in the place of the others.
template <typename E>
inline Lanes some(const E* from, long count) {
    if (count >= LANES) return widened(from);
    E padded[LANES] = {};
    std::memcpy(padded, from, count * sizeof(E));
    return widened(padded);
}

template <typename E>
inline void give(Lanes value, E* to, long count) {
    if (count >= LANES) return narrowed(value, to);
    E padded[LANES];
    narrowed(value, padded);
    std::memcpy(to, padded, count * sizeof(E));
}

#if defined(__clang__) || __GNUC__ >= 12
#define SHUFFLED(a, b, ...) __builtin_shufflevector(a, b, __VA_ARGS__)
#else
#define SHUFFLED(a, b, ...) __builtin_shuffle(a, b, Whole{__VA_ARGS__})
#endif

// The sum of the sixteen, halves first.
inline float total(Lanes of) {
    of += SHUFFLED(of, of, 8, 9, 10, 11, 12, 13, 14, 15, 0, 1, 2, 3, 4, 5, 6, 7);
    of += SHUFFLED(of, of, 4, 5, 6, 7, 0, 1, 2, 3, 12, 13, 14, 15, 8, 9, 10, 11);
    of += SHUFFLED(of, of, 2, 3, 0, 1, 6, 7, 4, 5, 10, 11, 8, 9, 14, 15, 12, 13);
    return of[0] + of[1];
}

// A square of sixteen vectors on its side: in four rounds, each of which exchanges half of what two of them hold.
template <int S>
inline void exchange(Lanes* a, Lanes* b) {
    constexpr auto kept = [](int c) { return c & S ? 16 + c - S : c; };
    constexpr auto moved = [](int c) { return c & S ? 16 + c : c + S; };
#define ALL_SIXTEEN(f) f(0), f(1), f(2), f(3), f(4), f(5), f(6), f(7), f(8), f(9), f(10), f(11), f(12), f(13), f(14), f(15)
    const Lanes first = SHUFFLED(*a, *b, ALL_SIXTEEN(kept));
    *b = SHUFFLED(*a, *b, ALL_SIXTEEN(moved));
    *a = first;
#undef ALL_SIXTEEN
}

inline void turn(Lanes square[LANES]) {
#pragma GCC unroll 16
    for (int i = 0; i < LANES; ++i) {
        if (!(i & 8)) exchange<8>(square + i, square + i + 8);
    }
#pragma GCC unroll 16
    for (int i = 0; i < LANES; ++i) {
        if (!(i & 4)) exchange<4>(square + i, square + i + 4);
    }
#pragma GCC unroll 16
    for (int i = 0; i < LANES; ++i) {
        if (!(i & 2)) exchange<2>(square + i, square + i + 2);
    }
#pragma GCC unroll 16
    for (int i = 0; i < LANES; ++i) {
        if (!(i & 1)) exchange<1>(square + i, square + i + 1);
    }
}

// Memory for the while of a call, or none where there is none.
struct Scratch {
    float* memory;
    explicit Scratch(long floats) : memory(static_cast<float*>(std::aligned_alloc(64, (floats * 4 + 63) / 64 * 64))) {}
    Scratch(const Scratch&) = delete;
    ~Scratch() { std::free(memory); }
};

inline void clear(float* from, long floats) { std::memset(from, 0, floats * sizeof(float)); }

}  // namespace
