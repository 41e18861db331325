// Causal attention of projected queries, keys and values, in float32 or from and to bfloat16.

#include "attention.h"

namespace {

template <typename E>
int forward(const E* qkv, const float* bias, E* y, float* levels, long batch, const Heads& of) {
    Scratch scratch(of.forward_floats());
    if (scratch.memory == nullptr) return 1;
    clear(scratch.memory, of.forward_floats());
    attend(of, qkv, bias, y, levels, batch, scratch.memory);
    return 0;
}

template <typename E>
int backward(const E* qkv, const float* bias, const float* levels, const E* dy, E* dqkv, float* dbias, long batch,
             const Heads& of) {
    Scratch scratch(of.backward_floats());
    if (scratch.memory == nullptr) return 1;
    clear(scratch.memory, of.backward_floats());
    attend_slope(of, qkv, bias, levels, dy, dqkv, dbias, batch, scratch.memory);
    return 0;
}

}  // namespace

// `half`: bfloat16 rather than float32. A bias is float32, and may be absent (null), with its gradient. `levels` holds the
// highest score of each query of each head.
extern "C" {

int attention_forward(int half, const void* qkv, const float* bias, void* y, float* levels, long batch, long time,
                      long heads, long size, float scale) {
    const Heads of(time, heads, size, scale);
    if (half) return forward(static_cast<const Half*>(qkv), bias, static_cast<Half*>(y), levels, batch, of);
    return forward(static_cast<const float*>(qkv), bias, static_cast<float*>(y), levels, batch, of);
}

int attention_backward(int half, const void* qkv, const float* bias, const float* levels, const void* dy, void* dqkv,
                       float* dbias, long batch, long time, long heads, long size, float scale) {
    const Heads of(time, heads, size, scale);
    if (half)
        return backward(static_cast<const Half*>(qkv), bias, levels, static_cast<const Half*>(dy),
                        static_cast<Half*>(dqkv), dbias, batch, of);
    return backward(static_cast<const float*>(qkv), bias, levels, static_cast<const float*>(dy),
                    static_cast<float*>(dqkv), dbias, batch, of);
}
}
