// The attention part of a block, x + attention(norm(x) A^T + a) B^T + b, and its gradients, one sequence at a time: queries,
// keys and values are three times as wide as what goes in, and are used while they are in the cache.
// Widths are multiples of 16; biases may be absent (null).

#include "attention.h"
#include "norm.h"
#include "products.h"

extern "C" {

// `qkv`, `levels` and `mixed` are for the backward pass; where `qkv` and `mixed` are null, nothing is kept of them.
int attend_forward(const float* x, const float* norm_weight, const float* norm_bias, const float* into,
                   const float* into_bias, const float* out, const float* out_bias, float* y, float* qkv, float* levels,
                   float* mixed, long batch, long time, long width, long heads, long size, float scale, int kind,
                   float eps) {
    const Norm norm = {kind, norm_weight, norm_bias, eps};
    const Heads of(time, heads, size, scale);
    const long inner = of.inner, into_floats = panels(3 * inner) * PANEL * width;
    const long out_floats = panels(width) * PANEL * inner;
    Scratch scratch(of.forward_floats() + into_floats + out_floats + time * (width + 4 * inner + heads));
    if (scratch.memory == nullptr) return 1;
    float *of_heads = scratch.memory, *into_packed = of_heads + of.forward_floats();
    float *out_packed = into_packed + into_floats, *given = out_packed + out_floats, *own = given + time * width;
    float *own_mixed = own + 3 * time * inner, *own_levels = own_mixed + time * inner;
    clear(of_heads, of.forward_floats());
    pack_turned(into, 3 * inner, width, into_packed);
    pack_turned(out, width, inner, out_packed);
    for (long b = 0; b < batch; ++b) {
        const float* from = x + b * time * width;
        float* to = y + b * time * width;
        float* projected = qkv == nullptr ? own : qkv + 3 * b * time * inner;
        float* joined = mixed == nullptr ? own_mixed : mixed + b * time * inner;
        normed(norm, from, time, width, given);
        layer(given, time, width, into_packed, into_bias, 3 * inner, projected);
        attend<float>(of, projected, nullptr, joined, qkv == nullptr ? own_levels : levels + b * heads * time, 1,
                      of_heads);
        residual(from, out_bias, time, width, to);
        times<From::goal>(joined, time, inner, out_packed, width, to);
    }
    return 0;
}

// Gradients of weights and biases come as zeros.
int attend_backward(const float* x, const float* norm_weight, const float* norm_bias, const float* into,
                    const float* out, const float* qkv, const float* levels, const float* mixed, const float* dy,
                    float* dx, float* dnorm_weight, float* dnorm_bias, float* dinto, float* dinto_bias, float* dout,
                    float* dout_bias, long batch, long time, long width, long heads, long size, float scale, int kind,
                    float eps) {
    const Norm norm = {kind, norm_weight, norm_bias, eps};
    const Heads of(time, heads, size, scale);
    const long inner = of.inner, into_floats = panels(width) * PANEL * 3 * inner;
    const long out_floats = panels(inner) * PANEL * width;
    Scratch scratch(of.backward_floats() + into_floats + out_floats + time * (2 * width + 4 * inner) +
                    slope_floats(width > inner ? width : inner));
    if (scratch.memory == nullptr) return 1;
    float *of_heads = scratch.memory, *into_packed = of_heads + of.backward_floats();
    float *out_packed = into_packed + into_floats, *given = out_packed + out_floats;
    float *given_slope = given + time * width, *slope = given_slope + time * width;
    float *joined_slope = slope + 3 * time * inner, *packed = joined_slope + time * inner;
    clear(of_heads, of.backward_floats());
    pack(into, 3 * inner, width, into_packed);
    pack(out, width, inner, out_packed);
    for (long b = 0; b < batch; ++b) {
        const float *from = x + b * time * width, *gain = dy + b * time * width;
        times<From::nothing>(gain, time, width, out_packed, inner, joined_slope);
        layer_slope(mixed + b * time * inner, gain, time, inner, width, dout, dout_bias, packed);
        attend_slope<float>(of, qkv + 3 * b * time * inner, nullptr, levels + b * heads * time, joined_slope, slope,
                            nullptr, 1, of_heads);
        normed(norm, from, time, width, given);
        layer_slope(given, slope, time, width, 3 * inner, dinto, dinto_bias, packed);
        times<From::nothing>(slope, time, 3 * inner, into_packed, width, given_slope);
        normed_slope(norm, from, given_slope, gain, time, width, dx + b * time * width, dnorm_weight, dnorm_bias);
    }
    return 0;
}
}
