/* Tables that depend on the position in the sequence only, made once before the first step, in
 * double. Rotary angles turn the pair (j, j + width / 2) by position x theta^(-2 j / width); the
 * sines of the first half are negated, so that y = x cos + rotate(x) sin. A factor above 1
 * stretches long wave lengths as Llama 3 does: those beyond original / low by the whole factor,
 * those within original / high not at all, between them a straight line in original / wave
 * length. */
#ifndef TEMPLATE_POSITIONS_H
#define TEMPLATE_POSITIONS_H

#include <math.h>
#include <stdint.h>

static inline void positions(int32_t *restrict out, int64_t tokens, int64_t sequence)
{
    for (int64_t t = 0; t < tokens; t++) out[t] = (int32_t)(t % sequence);
}

static inline double rope_frequency(int64_t j, int64_t width, double theta, double factor,
                                    double low, double high, double original)
{
    double frequency = pow(theta, -2.0 * (double)j / (double)width);
    if (!(factor > 1.0)) return frequency;
    double turns = original * frequency / 6.283185307179586;
    if (turns > high) return frequency;
    if (turns < low) return frequency / factor;
    double share = (turns - low) / (high - low);
    return (1.0 - share) * frequency / factor + share * frequency;
}

static inline void rope_cos(float *restrict out, int64_t sequence, int64_t width, double theta,
                            double factor, double low, double high, double original)
{
    for (int64_t s = 0; s < sequence; s++)
        for (int64_t j = 0; j < width; j++)
            out[s * width + j] =
                (float)cos((double)s * rope_frequency(j % (width / 2), width, theta, factor, low,
                                                      high, original));
}

static inline void rope_sin(float *restrict out, int64_t sequence, int64_t width, double theta,
                            double factor, double low, double high, double original)
{
    for (int64_t s = 0; s < sequence; s++)
        for (int64_t j = 0; j < width; j++) {
            double sine = sin((double)s * rope_frequency(j % (width / 2), width, theta, factor, low,
                                                         high, original));
            out[s * width + j] = (float)(j < width / 2 ? -sine : sine);
        }
}

#endif
