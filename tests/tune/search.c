/* The search of `planc tune` against trying every point: the same best points in the same order,
 * the same frontier, and bounds that no simulated point undercuts. A point that is passed over has
 * the memory and the time of the one that it is taken for.
 *     search PLAN [SET…]     prints how many were possible, how many the search simulated, and how
 *                            many were passed over */
#include "base/diagnostics.h"
#include "search/search.h"

#include <stdio.h>
#include <string.h>

/* Points that are no candidates; -1: one is not the point that it is taken for. */
static long passed_over(struct candidates *c, const struct search *all)
{
    long n = 0;
    for (int64_t i = 0; i < all->space->points; i++) {
        int choice[32];
        const struct candidate *x = search_candidate(all, i);
        if (x->number == i) continue;
        n++;
        choice_of(all->space, i, choice);
        struct place place = candidate_place(c, all->space, choice);
        const int64_t peak = candidate_peak(c, all->space, choice, &place),
                      step = candidate_step(c, all->space, choice, &place, NULL, NULL, NULL);
        if (place.point != x->number || (x->peak_bytes > 0 && peak != x->peak_bytes) ||
            (x->step > 0 && step != x->step))
            return printf("point %ld is not point %ld: %ld bytes, %ld ps, not %ld, %ld\n", (long)i,
                          (long)x->number, (long)peak, (long)step, (long)x->peak_bytes,
                          (long)x->step),
                   -1;
    }
    return n;
}

int main(int argc, char **argv)
{
    struct space *space;
    struct arguments a = {.command = "tune"};
    enum { TOP = 3 };
    if (plan_or_space_load(argv[1], (const char *const *)(argv + 2), argc - 2, &space) || !space) {
        diagnostics_print(stdout, false);
        return 2;
    }
    struct candidates *c = candidates_open(&a);
    const struct search *all = search_run(c, space, TOP, SEARCH_ALL, NULL),
                        *best = search_run(c, space, TOP, SEARCH_BEST, NULL),
                        *frontier = search_run(c, space, TOP, SEARCH_FRONTIER, NULL);
    int wrong = 0, simulated = 0;
    if (all->missing) return printf("missing: %s\n", all->missing), 2;
    for (int64_t i = 0; i < all->candidates; i++) {
        const struct candidate *x = &all->candidate[i], *y = &best->candidate[i],
                               *z = &frontier->candidate[i];
        simulated += x->step > 0;
        if (x->place.why) continue;
        if (y->least_bytes > x->peak_bytes)
            wrong = printf("point %ld: at least %ld bytes, laid out in %ld\n", (long)i,
                           (long)y->least_bytes, (long)x->peak_bytes);
        if (x->step && y->least_step > x->step)
            wrong = printf("point %ld: at least %ld ps, simulated in %ld\n", (long)i,
                           (long)y->least_step, (long)x->step);
        if (x->step && y->least_step <= 0) wrong = printf("point %ld has no bound\n", (long)i);
        if (x->frontier != z->frontier)
            wrong = printf("point %ld is %son the frontier\n", (long)i, x->frontier ? "" : "not ");
        if ((x->ruling == RULED_EXCEEDS) !=
                (y->ruling == RULED_EXCEEDS_BOUND || y->ruling == RULED_EXCEEDS) &&
            y->ruling != RULED_BOUND)
            wrong = printf("point %ld: another verdict\n", (long)i);
    }
    for (int i = 0; i < TOP && i < all->n_ranked; i++)
        if (i >= best->n_ranked || all->ranked[i] != best->ranked[i] ||
            all->ranked[i] != frontier->ranked[i])
            wrong = printf("the best but %d is point %d, not %d\n", i, all->ranked[i],
                           i < best->n_ranked ? best->ranked[i] : -1);
    if (simulated != all->n_ranked || best->simulations > all->simulations)
        wrong = printf("%d simulated, %d ranked\n", simulated, all->n_ranked);
    const long passed = passed_over(c, all);
    wrong |= passed < 0;
    if (!wrong)
        printf("%ld possible, %ld fit, %ld simulated, %ld passed over\n", (long)all->possible,
               (long)all->simulations, (long)best->simulations, passed);
    candidates_close(c);
    return wrong != 0;
}
