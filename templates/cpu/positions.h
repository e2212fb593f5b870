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
