/* Tables that depend on the position in the sequence only, made once before the first step, in
 * double, and positions in documents, of every micro-batch. Rotary angles turn the pair (j, j +
 * turned / 2) by position x theta^(-2 j / turned) / linear; the sines of the first half are
 * negated, so that y = x cos + rotate(x) sin. Columns from `turned` on stay as they are: their
 * cosine is 1, their sine 0. A factor above 1 stretches long wave lengths as Llama 3 does: those
 * beyond original / low by the whole factor, those within original / high not at all, between them
 * a straight line in original / wave length. */
#ifndef TEMPLATE_POSITIONS_H
#define TEMPLATE_POSITIONS_H

#include <math.h>
#include <stdint.h>

static inline void positions(int32_t *restrict out, int64_t tokens, int64_t sequence)
{
    for (int64_t t = 0; t < tokens; t++) out[t] = (int32_t)(t % sequence);
}

/* Places in documents, by their first rows. */
static inline void document_positions(const int32_t *restrict starts, int32_t *restrict out,
                                      int64_t tokens)
{
    for (int64_t t = 0; t < tokens; t++) out[t] = (int32_t)t - starts[t];
}

static inline double rope_angle(int64_t s, int64_t j, int64_t turned, double theta, double linear,
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

/* YaRN: pairs up to `from` turn as they are, from `to` on 1 / factor as fast, between them a
 * straight line in the number of the pair; cosines and sines are multiplied by `magnitude`. */
static inline double yarn_angle(int64_t s, int64_t j, int64_t turned, double theta, double factor,
                                double from, double to)
{
    double pair = (double)(j % (turned / 2)), share = (pair - from) / (to - from);
    double frequency = pow(theta, -2.0 * pair / (double)turned);
    share = share < 0.0 ? 0.0 : share > 1.0 ? 1.0 : share;
    return (double)s * (share * frequency / factor + (1.0 - share) * frequency);
}

static inline void rope_cos_yarn(float *restrict out, int64_t sequence, int64_t width,
                                 int64_t turned, double theta, double factor, double from,
                                 double to, double magnitude)
{
    for (int64_t s = 0; s < sequence; s++)
        for (int64_t j = 0; j < width; j++) {
            double angle = yarn_angle(s, j, turned, theta, factor, from, to);
            out[s * width + j] = j < turned ? (float)(magnitude * cos(angle)) : 1.0f;
        }
}

static inline void rope_sin_yarn(float *restrict out, int64_t sequence, int64_t width,
                                 int64_t turned, double theta, double factor, double from,
                                 double to, double magnitude)
{
    for (int64_t s = 0; s < sequence; s++)
        for (int64_t j = 0; j < width; j++) {
            double sine = magnitude * sin(yarn_angle(s, j, turned, theta, factor, from, to));
            out[s * width + j] = j >= turned ? 0.0f : (float)(j < turned / 2 ? -sine : sine);
        }
}

static inline void rope_cos(float *restrict out, int64_t sequence, int64_t width, int64_t turned,
                            double theta, double linear, double factor, double low, double high,
                            double original)
{
    for (int64_t s = 0; s < sequence; s++)
        for (int64_t j = 0; j < width; j++) {
            double angle = rope_angle(s, j, turned, theta, linear, factor, low, high, original);
            out[s * width + j] = j < turned ? (float)cos(angle) : 1.0f;
        }
}

static inline void rope_sin(float *restrict out, int64_t sequence, int64_t width, int64_t turned,
                            double theta, double linear, double factor, double low, double high,
                            double original)
{
    for (int64_t s = 0; s < sequence; s++)
        for (int64_t j = 0; j < width; j++) {
            double angle = rope_angle(s, j, turned, theta, linear, factor, low, high, original);
            double sine = j < turned / 2 ? -sin(angle) : sin(angle);
            out[s * width + j] = j < turned ? (float)sine : 0.0f;
        }
}

#endif
