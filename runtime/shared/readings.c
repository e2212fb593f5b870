/* The steps that are kept: at most READINGS, at equal distances, and the last. When there are too
 * many, every second one goes and the distance doubles: a run of any length is covered evenly. */
#include "readings.h"

static bool is_regular(const struct readings *r, int64_t step) { return step % r->every == 0; }

void readings_add(struct readings *r, struct reading next)
{
    if (r->every == 0) r->every = 1;
    if (r->n > 0 && !is_regular(r, r->at[r->n - 1].step)) r->n--; /* it was only the last */
    while (r->n >= READINGS && is_regular(r, next.step)) {
        int kept = 0;
        r->every *= 2;
        for (int i = 0; i < r->n; i++)
            if (is_regular(r, r->at[i].step)) r->at[kept++] = r->at[i];
        r->n = kept;
    }
    r->at[r->n++] = next;
}

/* The distance of the steps of a list, whose last may stand anywhere. */
static int64_t distance(const struct reading *list, int n)
{
    int64_t bits = 0;
    for (int i = 0; i + 1 < n; i++) bits |= list[i].step;
    return bits > 0 ? bits & -bits : 1;
}

bool readings_set(struct readings *r, const struct reading *list, int n)
{
    int64_t step = -1, sample = -1;
    *r = (struct readings){.every = distance(list, n)};
    for (int i = 0; i < n; i++) {
        if (list[i].step <= step || list[i].sample <= sample) return false;
        step = list[i].step, sample = list[i].sample;
        readings_add(r, list[i]);
    }
    return true;
}
