// Products of float32 matrices with the sums of a tile in registers (Goto and van de Geijn 2008).
//
// The right factor lies in panels: 64 columns each, the rows of a panel one after another. Every entry of a product is one
// chain of multiply-adds over the depth, in order, whatever tile it lies in: a row gives the same bits among few and many.
#pragma once

#include "lanes.h"

namespace {

constexpr long PANEL = 64;
constexpr int VECTORS = PANEL / LANES;
constexpr int TALL = 6;  // rows of a tile: with four vectors each, 24 of 32 registers

inline long panels(long columns) { return (columns + PANEL - 1) / PANEL; }

// A left factor: entry (i, d) is at[i * row + d * step + d / 64 * jump].
struct Left {
    const float* at;
    long row, step, jump;
};

// Row-major, its transpose, and panels whose first `height` rows are asked for or not.
inline Left as_rows(const float* at, long width) { return {at, width, 1, 0}; }
inline Left as_columns(const float* at, long width) { return {at, 1, width, 0}; }
inline Left as_panels(const float* at, long height) { return {at, PANEL, 1, (height - 1) * PANEL}; }

// Where a product goes: entry (i, j) is at[i * row + j / 64 * panel + j % 64].
struct Goal {
    float* at;
    long row, panel;
};
inline Goal to_rows(float* at, long width) { return {at, width, PANEL}; }
inline Goal to_panels(float* at, long height) { return {at, PANEL, height * PANEL}; }

enum class From { nothing, bias, goal };  // what the sums start from

template <int R, int V, From start>
inline void tile(Left a, const float* b, long depth, float* c, long row, const float* bias) {
    Lanes sums[R][V];
#pragma GCC unroll 6
    for (int i = 0; i < R; ++i)
#pragma GCC unroll 4
        for (int v = 0; v < V; ++v) {
            __builtin_prefetch(c + i * row + v * LANES, 1);
            sums[i][v] = start == From::bias ? load(bias + v * LANES) : Lanes{};
        }
    const long stretch = a.jump == 0 ? depth : PANEL;  // an end of a loop is guessed wrong, so there are no more than needed
    for (long done = 0; done < depth; done += stretch) {
        const long upto = depth - done < stretch ? depth - done : stretch;
        for (long d = 0; d < upto; ++d) {
            Lanes right[V];
#pragma GCC unroll 4
            for (int v = 0; v < V; ++v) right[v] = load(b + v * LANES);
#pragma GCC unroll 6
            for (int i = 0; i < R; ++i) {
                const float left = a.at[i * a.row];
#pragma GCC unroll 4
                for (int v = 0; v < V; ++v) sums[i][v] += left * right[v];
            }
            a.at += a.step;
            b += PANEL;
        }
        a.at += a.jump;
    }
#pragma GCC unroll 6
    for (int i = 0; i < R; ++i)
#pragma GCC unroll 4
        for (int v = 0; v < V; ++v) {
            float* mine = c + i * row + v * LANES;
            store(mine, start == From::goal ? load(mine) + sums[i][v] : sums[i][v]);
        }
}

template <int V, From start>
inline void strip(Left a, long rows, const float* b, long depth, float* c, long row, const float* bias) {
    long i = 0;
    for (; i + TALL <= rows; i += TALL) {
        tile<TALL, V, start>(a, b, depth, c + i * row, row, bias);
        a.at += TALL * a.row;
    }
    c += i * row;
    switch (rows - i) {
        case 5: return tile<5, V, start>(a, b, depth, c, row, bias);
        case 4: return tile<4, V, start>(a, b, depth, c, row, bias);
        case 3: return tile<3, V, start>(a, b, depth, c, row, bias);
        case 2: return tile<2, V, start>(a, b, depth, c, row, bias);
        case 1: return tile<1, V, start>(a, b, depth, c, row, bias);
        default: return;
    }
}

// goal = start + left x right: rows x depth by depth x columns. `columns` is a multiple of 16, as is every width here.
template <From start>
inline void product(Left a, long rows, long depth, const float* right, long panel, long columns, Goal goal,
                    const float* bias = nullptr) {
    for (long first = 0; first < columns; first += PANEL) {
        const float *b = right + first / PANEL * panel, *added = start == From::bias ? bias + first : nullptr;
        float* c = goal.at + first / PANEL * goal.panel;
        switch (columns - first < PANEL ? (columns - first) / LANES : VECTORS) {
            case 4: strip<4, start>(a, rows, b, depth, c, goal.row, added); break;
            case 3: strip<3, start>(a, rows, b, depth, c, goal.row, added); break;
            case 2: strip<2, start>(a, rows, b, depth, c, goal.row, added); break;
            default: strip<1, start>(a, rows, b, depth, c, goal.row, added);
        }
    }
}

// A row-major matrix as panels.
inline void pack(const float* from, long height, long width, float* to) {
    for (long first = 0; first < width; first += PANEL) {
        const long count = width - first < PANEL ? width - first : PANEL;
        for (long t = 0; t < height; ++t, to += PANEL) std::memcpy(to, from + t * width + first, count * sizeof(float));
    }
}

// The transpose of a row-major matrix as panels: `height` becomes the columns.
inline void pack_turned(const float* from, long height, long width, float* to) {
    for (long first = 0; first < height; first += PANEL, to += width * PANEL) {
        const long count = height - first < PANEL ? height - first : PANEL;
        for (long left = 0; left < width; left += LANES)
            for (long j = 0; j < count; ++j)
                for (long d = left; d < left + LANES; ++d) to[d * PANEL + j] = from[(first + j) * width + d];
    }
}

// sums[j] += the sum over rows of a row-major matrix; `width` is a multiple of 16.
inline void add_up(const float* from, long height, long width, float* sums) {
    for (long d = 0; d < width; d += LANES) {
        Lanes sum = load(sums + d);
        for (long t = 0; t < height; ++t) sum += load(from + t * width + d);
        store(sums + d, sum);
    }
}

constexpr long TOGETHER = 96;  // rows taken at once: what is made of them stays in the second cache

// y = start + x right, row-major, some rows at a time.
template <From start>
inline void times(const float* x, long height, long depth, const float* right, long columns, float* y,
                  const float* bias = nullptr) {
    for (long t = 0; t < height; t += TOGETHER) {
        const long rows = height - t < TOGETHER ? height - t : TOGETHER;
        product<start>(as_rows(x + t * depth, depth), rows, depth, right, PANEL * depth, columns,
                       to_rows(y + t * columns, columns), bias);
    }
}

// y = x W^T + bias, with W^T in panels.
inline void layer(const float* x, long height, long in, const float* packed, const float* bias, long out, float* y) {
    if (bias == nullptr)
        times<From::nothing>(x, height, in, packed, out, y);
    else
        times<From::bias>(x, height, in, packed, out, y, bias);
}

inline long slope_floats(long in) { return panels(in) * PANEL * TOGETHER; }

// The gradients of a layer's weight and bias, added to what is there. The scratch holds `slope_floats(in)`.
inline void layer_slope(const float* x, const float* dy, long height, long in, long out, float* dweight, float* dbias,
                        float* scratch) {
    for (long t = 0; t < height; t += TOGETHER) {
        const long rows = height - t < TOGETHER ? height - t : TOGETHER;
        pack(x + t * in, rows, in, scratch);
        product<From::goal>(as_columns(dy + t * out, out), out, rows, scratch, PANEL * rows, in, to_rows(dweight, in));
        if (dbias != nullptr) add_up(dy + t * out, rows, out, dbias);
    }
}

}  // namespace
