/* Tables that depend on the position in the sequence only, made once before the first step, in
 * double: the same formulas as those of the cpu device (templates/cpu/positions.h, which explains
 * them); the libraries' functions may differ in the last bit of a double. */
#ifndef CUDA_POSITIONS_CUH
#define CUDA_POSITIONS_CUH

#include "machine.cuh"

/* One thread per element, 256 per block, in all of these. */
DEVICE void positions(int32_t *out, int64_t tokens, int64_t sequence)
{
    int64_t t = (int64_t)blockIdx.x * 256 + (int)threadIdx.x;
    if (t < tokens) out[t] = (int32_t)(t % sequence);
}

DEVICE void document_positions(const int32_t *starts, int32_t *out, int64_t tokens)
{
    int64_t t = (int64_t)blockIdx.x * 256 + (int)threadIdx.x;
    if (t < tokens) out[t] = (int32_t)t - starts[t];
}

DEVICE double rope_angle(int64_t s, int64_t j, int64_t turned, double theta, double linear,
                         double factor, double low, double high, double original)
{
    double frequency = pow(theta, -2.0 * (double)(j % (turned / 2)) / (double)turned) / linear;
    if (!(factor > 1.0)) return (double)s * frequency;
    double turns = original * frequency / 6.283185307179586;
    if (turns > high) return (double)s * frequency;
    if (turns < low) return (double)s * (frequency / factor);
    double share = (turns - low) / (high - low);
    return (double)s * ((1.0 - share) * frequency / factor + share * frequency);
}

DEVICE double yarn_angle(int64_t s, int64_t j, int64_t turned, double theta, double factor,
                         double from, double to)
{
    double pair = (double)(j % (turned / 2)), share = (pair - from) / (to - from);
    double frequency = pow(theta, -2.0 * pair / (double)turned);
    share = share < 0.0 ? 0.0 : share > 1.0 ? 1.0 : share;
    return (double)s * (share * frequency / factor + (1.0 - share) * frequency);
}

DEVICE void rope_cos_yarn(float *out, int64_t sequence, int64_t width, int64_t turned, double theta,
                          double factor, double from, double to, double magnitude)
{
    int64_t i = (int64_t)blockIdx.x * 256 + (int)threadIdx.x, s = i / width, j = i % width;
    if (s >= sequence) return;
    double angle = yarn_angle(s, j, turned, theta, factor, from, to);
    out[i] = j < turned ? (float)(magnitude * cos(angle)) : 1.0f;
}

DEVICE void rope_sin_yarn(float *out, int64_t sequence, int64_t width, int64_t turned, double theta,
                          double factor, double from, double to, double magnitude)
{
    int64_t i = (int64_t)blockIdx.x * 256 + (int)threadIdx.x, s = i / width, j = i % width;
    if (s >= sequence) return;
    double sine = magnitude * sin(yarn_angle(s, j, turned, theta, factor, from, to));
    out[i] = j >= turned ? 0.0f : (float)(j < turned / 2 ? -sine : sine);
}

DEVICE void rope_cos(float *out, int64_t sequence, int64_t width, int64_t turned, double theta,
                     double linear, double factor, double low, double high, double original)
{
    int64_t i = (int64_t)blockIdx.x * 256 + (int)threadIdx.x, s = i / width, j = i % width;
    if (s >= sequence) return;
    double angle = rope_angle(s, j, turned, theta, linear, factor, low, high, original);
    out[i] = j < turned ? (float)cos(angle) : 1.0f;
}

DEVICE void rope_sin(float *out, int64_t sequence, int64_t width, int64_t turned, double theta,
                     double linear, double factor, double low, double high, double original)
{
    int64_t i = (int64_t)blockIdx.x * 256 + (int)threadIdx.x, s = i / width, j = i % width;
    if (s >= sequence) return;
    double angle = rope_angle(s, j, turned, theta, linear, factor, low, high, original);
    out[i] = j < turned ? (float)(j < turned / 2 ? -sin(angle) : sin(angle)) : 0.0f;
}

#endif
