/* The search of `planc tune` against trying every point: the same best points in the same order,
 * the same frontier, and bounds that no simulated point undercuts.
 *     search PLAN [SET…]     prints how many were possible and how many the search simulated */
#include "base/diagnostics.h"
#include "search/search.h"

#include <stdio.h>
#include <string.h>

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
    if (!wrong)
        printf("%ld possible, %ld fit, %ld simulated\n", (long)all->possible,
               (long)all->simulations, (long)best->simulations);
    candidates_close(c);
    return wrong != 0;
}
