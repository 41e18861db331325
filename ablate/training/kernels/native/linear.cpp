// A linear layer, x W^T + bias, and its gradients. Widths are multiples of 16; a bias may be absent (null).

#include "products.h"

extern "C" {

int linear_forward(const float* x, const float* weight, const float* bias, float* y, long height, long in, long out) {
    Scratch scratch(panels(out) * PANEL * in);
    if (scratch.memory == nullptr) return 1;
    pack_turned(weight, out, in, scratch.memory);
    layer(x, height, in, scratch.memory, bias, out, y);
    return 0;
}

// `dweight` and, where there is a bias, `dbias` come as zeros.
int linear_backward(const float* x, const float* weight, const float* dy, float* dx, float* dweight, float* dbias,
                    long height, long in, long out) {
    Scratch scratch(panels(in) * PANEL * out + slope_floats(in));
    if (scratch.memory == nullptr) return 1;
    pack(weight, out, in, scratch.memory);
    times<From::nothing>(dy, height, out, scratch.memory, in, dx);
    layer_slope(x, dy, height, in, out, dweight, dbias, scratch.memory + panels(in) * PANEL * out);
    return 0;
}
}
