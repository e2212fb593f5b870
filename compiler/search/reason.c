/* Why a point is not the best, in words. */
#include "search/search.h"

const char *search_time_text(int64_t picoseconds)
{
    return text_seconds((double)picoseconds * 1e-12);
}

static int64_t most_bytes(const struct candidate *x)
{
    return (int64_t)(0.97 * (double)x->place.limit_bytes);
}

static double percent(int64_t x, int64_t least) { return 100 * ((double)x / (double)least - 1); }

/* The part of the step that is longest beyond that of the best. */
static const char *longer_part(const struct candidate *x, const struct candidate *best)
{
    int most = 0;
    for (int i = 1; i < TIME_PARTS; i++)
        if (x->parts.part[i] - best->parts.part[i] > x->parts.part[most] - best->parts.part[most])
            most = i;
    return text_format("%s takes %s more", time_part_name(most),
                       search_time_text(x->parts.part[most] - best->parts.part[most]));
}

/* "layers.backward, step 57 of 93": where the most is alive. */
static const char *fullest(struct candidates *c, const struct search *s, const struct candidate *x)
{
    int *choice = TAKE_MANY(int, s->space->n_axes + 1);
    choice_of(s->space, x->number, choice);
    return candidate_fullest(c, s->space, choice, &x->place);
}

const char *search_reason(struct candidates *c, const struct search *s, const struct candidate *x)
{
    const struct candidate *best = s->n_ranked ? &s->candidate[s->ranked[0]] : NULL;
    switch (x->ruling) {
    case RULED_IMPOSSIBLE: return x->place.why;
    case RULED_EXCEEDS_BOUND:
        return text_format("exceeds by %s or more at %s: so much is alive at once",
                           text_bytes(x->least_bytes - most_bytes(x)), fullest(c, s, x));
    case RULED_EXCEEDS:
        return text_format("exceeds by %s at %s", text_bytes(x->peak_bytes - most_bytes(x)),
                           fullest(c, s, x));
    case RULED_BOUND:
        if (!best) return "not simulated";
        return text_format("bound above the best by %.1f %%: %s or more, not simulated",
                           percent(x->least_step, best->step), search_time_text(x->least_step));
    case RULED_SLOWER:
        if (x->step == best->step) return "as fast; memory or the order of the choices decides";
        return text_format("slower by %.1f %%: %s", percent(x->step, best->step),
                           longer_part(x, best));
    case RULED_BEST: return "the best";
    }
    bug("no reason");
}
