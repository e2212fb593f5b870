/* The parts of a layer over the tape, which all families are made of: norms, products, positions,
 * attention, activations. */
#include "truth.h"

#include <math.h>
#include <stdlib.h>

int constants(int n, double x)
{
    int at = reserve(n);
    for (int i = 0; i < n; i++) value[at + i] = x;
    return at;
}
/* n rows of `width` values, wherever at[] says they are; bias -1: RMSNorm, else LayerNorm. */
int norm(const int *at, int n, int width, int g, int bias)
{
    int y = reserve(n * width), ones = constants(width, 1);
    for (int p = 0; p < n; p++) {
        int x = at[p], t = reserve(4), s = reserve(width), centred = reserve(width);
        if (bias >= 0) {
            inner(t + 2, width, x, 1, ones, 1);
            unary(t + 3, t + 2, value[t + 2] / width, 1.0 / width);
            for (int j = 0; j < width; j++)
                binary(centred + j, x + j, t + 3, value[x + j] - value[t + 3], 1, -1);
            x = centred;
        }
        inner(t, width, x, 1, x, 1);
        double mean = value[t] / width + knob[EPS].value, r = 1 / sqrt(mean);
        unary(t + 1, t, r, -0.5 * r / mean / width);
        for (int j = 0; j < width; j++) {
            times(s + j, x + j, t + 1);
            if (is_gemma()) { /* times 1 + g */
                int scaled = reserve(1);
                times(scaled, s + j, g + j);
                plus(y + p * width + j, scaled, s + j);
            } else if (bias < 0)
                times(y + p * width + j, s + j, g + j);
            else {
                int scaled = reserve(1);
                times(scaled, s + j, g + j);
                plus(y + p * width + j, scaled, bias + j);
            }
        }
    }
    return y;
}
/* The same over each head of n x heads x d contiguous values. */
int norm_heads(int x, int n, int d, int g)
{
    if (g < 0) return x;
    int *at = malloc((size_t)n * sizeof *at);
    if (!at) fatal("out of", "memory");
    for (int i = 0; i < n; i++) at[i] = x + i * d;
    int y = norm(at, n, d, g, -1);
    free(at);
    return y;
}
int linear(int x, int n, int in, int w, int out)
{
    int y = reserve(n * out);
    for (int p = 0; p < n; p++)
        for (int j = 0; j < out; j++) inner(y + p * out + j, in, x + p * in, 1, w + j * in, 1);
    return y;
}
/* Columns from.. of n rows that are `row` wide. */
int columns(int x, int n, int row, int from, int width)
{
    int y = reserve(n * width);
    for (int p = 0; p < n; p++)
        for (int j = 0; j < width; j++)
            unary(y + p * width + j, x + p * row + from + j, value[x + p * row + from + j], 1);
    return y;
}
/* YaRN: the number of the pair that turns so many times within the original length. */
static double pair_of(double turns, const struct turning *how)
{
    return how->width * log(knob[ORIGINAL].value / (turns * 2 * M_PI)) / (2 * log(how->theta));
}
static double yarn_frequency(int j, const struct turning *how)
{
    double low = fmax(floor(pair_of(knob[FAST].value, how)), 0),
           high = fmin(ceil(pair_of(knob[SLOW].value, how)), how->width - 1),
           f = pow(how->theta, -2.0 * j / how->width);
    if (low == high) high += 0.001;
    double kept = 1 - fmin(1, fmax(0, (j - low) / (high - low)));
    return kept * f + (1 - kept) * f / knob[YARN].value;
}
static double frequency(int j, const struct turning *how)
{
    if (knob[YARN].value > 1) return yarn_frequency(j, how);
    double f = pow(how->theta, -2.0 * j / how->width) / how->linear, w = 6.283185307179586 / f;
    double factor = knob[FACTOR].value, low = knob[LOW].value, high = knob[HIGH].value,
           c = knob[ORIGINAL].value;
    if (factor == 1 || family_is_later() || w < c / high) return f;
    if (w > c / low) return f / factor;
    double m = (c / w - low) / (high - low);
    return (1 - m) * f / factor + m * f;
}
int starts[4096];
void find_documents(const uint16_t *ids, int n)
{
    if (n > (int)(sizeof starts / sizeof *starts)) fatal("too long", "seq");
    for (int p = 0; p < n; p++)
        starts[p] = p && (whole(END) < 0 || ids[p - 1] != whole(END)) ? starts[p - 1] : p;
}
int turn(int x, int n, int heads, int d, struct turning how)
{
    int y = reserve(n * heads * d), half = how.width / 2;
    double size = knob[YARN].value <= 1       ? 1
                  : knob[MAGNITUDE].value > 0 ? knob[MAGNITUDE].value
                                              : 0.1 * log(knob[YARN].value) + 1;
    for (int p = 0; p < n; p++)
        for (int h = 0; h < heads; h++) {
            for (int j = 0; j < half; j++) {
                int a = (p * heads + h) * d + j, b = a + half;
                double angle = (p - starts[p]) * frequency(j, &how), c = size * cos(angle),
                       s = size * sin(angle);
                binary(y + a, x + a, x + b, value[x + a] * c - value[x + b] * s, c, -s);
                binary(y + b, x + b, x + a, value[x + b] * c + value[x + a] * s, c, s);
            }
            for (int j = how.width; j < d; j++) {
                int a = (p * heads + h) * d + j;
                unary(y + a, x + a, value[x + a], 1);
            }
        }
    return y;
}
int powers(int x, int n, double scale, int ones)
{
    int y = reserve(n + 1);
    double top = -INFINITY;
    for (int i = 0; i < n; i++) top = fmax(top, value[x + i]);
    for (int i = 0; i < n; i++) {
        double e = exp((value[x + i] - top) * scale);
        unary(y + i, x + i, e, e * scale);
    }
    inner(y + n, n, y, 1, ones, 1);
    return y;
}
void quotient(int out, int a, int b)
{
    binary(out, a, b, value[a] / value[b], 1 / value[b], -value[a] / (value[b] * value[b]));
}
int softmax(int x, int n, double scale, int ones)
{
    int e = powers(x, n, scale, ones), y = reserve(n);
    for (int i = 0; i < n; i++) quotient(y + i, e + i, e + n);
    return y;
}
int attend(int q, int k, int v, int n, int heads, int kv, int d, struct rule how)
{
    int y = reserve(n * heads * d), ones = constants(n, 1);
    for (int p = 0; p < n; p++)
        for (int h = 0; h < heads; h++) {
            int from = how.window && p >= how.window ? p - how.window + 1 : 0;
            if (starts[p] > from) from = starts[p];
            int m = p + 1 - from, share = h / (heads / kv), scores = reserve(m);
            double scale = how.scale;
            for (int i = 0; i < m; i++)
                inner(scores + i, d, q + (p * heads + h) * d, 1, k + ((from + i) * kv + share) * d,
                      1);
            if (how.cap > 0) {
                int capped = reserve(m);
                for (int i = 0; i < m; i++) {
                    double t = tanh(value[scores + i] * scale / how.cap);
                    unary(capped + i, scores + i, how.cap * t, (1 - t * t) * scale);
                }
                scores = capped, scale = 1;
            }
            int weights = softmax(scores, m, scale, ones);
            for (int j = 0; j < d; j++)
                inner(y + (p * heads + h) * d + j, m, weights, 1, v + (from * kv + share) * d + j,
                      kv * d);
        }
    return y;
}
int swish(int g, int u, int n)
{
    int y = reserve(n), s = reserve(n);
    for (int i = 0; i < n; i++) {
        double x = value[g + i], p = 1 / (1 + exp(-x));
        unary(s + i, g + i, x * p, p + x * p * (1 - p));
        times(y + i, s + i, u + i);
    }
    return y;
}
int gelu(int x, int n)
{
    int y = reserve(n);
    double a = sqrt(2 / M_PI), b = 0.044715;
    for (int i = 0; i < n; i++) {
        double v = value[x + i], t = tanh(a * (v + b * v * v * v)),
               phi = 0.5 * (1 + erf(v * M_SQRT1_2));
        if (whole(ERF))
            unary(y + i, x + i, v * phi, phi + v * exp(-v * v / 2) / sqrt(2 * M_PI));
        else
            unary(y + i, x + i, 0.5 * v * (1 + t),
                  0.5 * (1 + t) + 0.5 * v * (1 - t * t) * a * (1 + 3 * b * v * v));
    }
    return y;
}
/* at[] += y, row by row. */
void residual(int *at, int y, int n, int width)
{
    int z = reserve(n * width);
    for (int p = 0; p < n; p++) {
        for (int j = 0; j < width; j++) plus(z + p * width + j, at[p] + j, y + p * width + j);
        at[p] = z + p * width;
    }
}
int with_bias(int x, int n, int width, int bias)
{
    if (bias < 0) return x;
    int y = reserve(n * width);
    for (int i = 0; i < n * width; i++) plus(y + i, x + i, bias + i % width);
    return y;
}
