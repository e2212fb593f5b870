/* Numbers of a structure as functions of its tokens: what they are at some tokens, at twice as
 * many, and in more pieces of the loss, says what they are at any. */
#ifndef PLANC_FORM_H
#define PLANC_FORM_H

#include "ir/ir.h"

#include <math.h>

/* value = base + row x tokens + piece x tokens / chunks */
struct real_form {
    double base, row, piece;
};

/* a: in the graph; b: at twice its tokens; c: in `many` pieces. */
static inline struct real_form form_of(const struct graph *g, int64_t many, double a, double b,
                                       double c)
{
    double tokens = (double)g->facts.tokens, few = (double)g->facts.loss_chunks;
    struct real_form f = {0};
    if (many != g->facts.loss_chunks) f.piece = (a - c) / (tokens / few - tokens / (double)many);
    f.row = (b - a - f.piece * (tokens / few)) / tokens;
    f.base = a - f.row * tokens - f.piece * (tokens / few);
    return f;
}

static inline double value_of(const struct real_form *f, double tokens, double chunks)
{
    return round(f->base + f->row * tokens + f->piece * (tokens / chunks));
}

#endif
