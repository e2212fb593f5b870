/* Stored tensor names and the patterns that match them. The names come from files and contain
 * numbers; the model has {i} (layer) and {e} (part of a stack) in their place, and a pattern must
 * mean the same for both. Used by the lowering, which refuses patterns that match nothing or only
 * some layers, and for the tables of the program. */
#include "check/plan.h"

#include <ctype.h>
#include <string.h>

/* {i} or {e}: one letter of a name, that nothing but itself and * stands for. */
static bool is_number(const char *at) { return !strncmp(at, "{i}", 3) || !strncmp(at, "{e}", 3); }

/* One letter or number of both; false: they differ. */
static bool step(const char **pattern, const char **name)
{
    const char *from = *name;
    if (!**pattern || !**name) return false;
    if (!is_number(*pattern)) return !is_number(*name) && *(*pattern)++ == *(*name)++;
    if (is_number(*name))
        *name += 3;
    else
        while (isdigit((unsigned char)**name)) ++*name;
    *pattern += 3;
    return *name > from;
}

/* What a * before the last one stood for never has to be longer, so only that one is tried again.
 */
bool stored_matches(const char *pattern, const char *name)
{
    const char *star = NULL, *from = NULL;
    while (*pattern || *name) {
        if (*pattern == '*') {
            star = ++pattern;
            from = name;
        } else if (!step(&pattern, &name)) {
            if (!star || !*from) return false;
            from += is_number(from) ? 3 : 1;
            name = from;
            pattern = star;
        }
    }
    return true;
}

double plan_weight_decay(const struct plan *p, const char *stored, int rank)
{
    double decay = rank < 2 ? 0 : p->weight_decay;
    for (int i = 0; i < p->n_groups; i++)
        if (p->group[i].has_decay && stored_matches(p->group[i].pattern, stored))
            decay = p->group[i].weight_decay;
    return decay;
}

double plan_lr_scale(const struct plan *p, const char *stored)
{
    double scale = 1;
    for (int i = 0; i < p->n_groups; i++)
        if (p->group[i].has_scale && stored_matches(p->group[i].pattern, stored))
            scale = p->group[i].lr_scale;
    return scale;
}

bool plan_scales_rates(const struct plan *p)
{
    for (int i = 0; i < p->n_groups; i++)
        if (p->group[i].has_scale) return true;
    return false;
}

static int least(int a, int b) { return a < b ? a : b; }

/* The fewest changes, swaps of neighbours among them, that turn n letters of `word` into some
 * stretch of `text` (Sellers, 1980; Damerau, 1964). cost[i] is for the first i letters of the word
 * and a stretch that ends here. */
static int distance_within(const char *word, int n, const char *text)
{
    int *cost = TAKE_MANY(int, n + 1), *before = TAKE_MANY(int, n + 1),
        *last = TAKE_MANY(int, n + 1), best = n;
    for (int i = 0; i <= n; i++) cost[i] = i;
    for (int k = 0; text[k]; k++) {
        int *free = last;
        last = before;
        before = cost;
        cost = free;
        cost[0] = 0; /* a stretch may begin anywhere */
        for (int i = 1; i <= n; i++) {
            cost[i] =
                least(before[i - 1] + (word[i - 1] != text[k]), least(before[i], cost[i - 1]) + 1);
            if (i > 1 && k > 0 && word[i - 1] == text[k - 1] && word[i - 2] == text[k])
                cost[i] = least(cost[i], last[i - 2] + 1);
        }
        best = least(best, cost[n]);
    }
    return best;
}

int stored_distance(const char *pattern, const char *name)
{
    int sum = 0;
    while (*pattern) {
        int n = (int)strcspn(pattern, "*");
        sum += distance_within(pattern, n, name);
        pattern += n + (pattern[n] == '*');
    }
    return sum;
}
