/* Checks optimizer groups against the weights of the architecture. A pattern that matches no weight
 * is a misspelling that would train with the wrong decay. A pattern that matches only some layers
 * of a repeat cannot be kept, because a rolled body has one number for all its layers. Both are
 * errors, with the names that exist. */
#include "passes/lower.h"

#include <stdlib.h>

/* The first stored tensor of the weight for which the pattern says something else than for the
 * rest; NULL: all alike. */
static const char *told_apart(const struct declared_weight *d, const char *pattern, bool all)
{
    const char *name = d->weight->tensor;
    bool by_layer = strstr(name, "{i}") != NULL;
    int64_t parts = d->weight->stack ? d->weight->stack : 1;
    for (int64_t i = 0; i < (by_layer ? d->region->count : 1); i++) {
        bool mine = d->body->layers.n == 0;
        for (int k = 0; k < d->body->layers.n; k++)
            mine |= i >= d->body->layers.item[k].from && i < d->body->layers.item[k].to;
        for (int64_t e = 0; mine && e < parts; e++) {
            const char *one = lower_numbered(name, i, e);
            if (stored_matches(pattern, one) != all) return one;
        }
    }
    return NULL;
}

/* Only a pattern that spells a number can tell numbers apart. */
static bool has_digit(const char *pattern) { return strpbrk(pattern, "0123456789") != NULL; }

struct near {
    const char *name;
    int distance, order;
};

static int nearer(const void *a, const void *b)
{
    const struct near *x = a, *y = b;
    return x->distance != y->distance ? (x->distance > y->distance) - (x->distance < y->distance)
                                      : (x->order > y->order) - (x->order < y->order);
}

static void stands_for_nothing(const struct lower *l, const struct weight_group *g)
{
    struct diagnostic *d = complain(g->at, "no weight of %s is stored under a name like \"%s\"",
                                    l->plan->architecture, g->pattern);
    struct near *near = TAKE_MANY(struct near, l->declared.n + 1);
    int n = 0;
    for (int i = 0; i < l->declared.n; i++) {
        const char *name = l->declared.item[i].weight->tensor;
        bool known = false; /* layers of two kinds declare one name twice */
        for (int k = 0; k < n; k++) known |= near[k].name == name;
        if (known) continue;
        near[n] = (struct near){name, stored_distance(g->pattern, name), n};
        n++;
    }
    qsort(near, (size_t)n, sizeof *near, nearer);
    struct text t = {0};
    for (int i = 0; i < n && i < 3; i++) text_add(&t, "%s%s", i ? ", " : "", near[i].name);
    if (n) add_help(d, "the nearest of its %d stored names: %s", n, t.bytes);
}

void lower_groups(struct lower *l)
{
    for (int k = 0; k < l->plan->n_groups; k++) {
        const struct weight_group *g = &l->plan->group[k];
        bool any = false, split = false;
        for (int i = 0; i < l->declared.n && !split; i++) {
            const struct declared_weight *w = &l->declared.item[i];
            /* the bias of a router has neither decay nor a rate of the schedule */
            if (w->weight->balances) continue;
            bool matches = stored_matches(g->pattern, w->weight->tensor);
            const char *other = has_digit(g->pattern) ? told_apart(w, g->pattern, matches) : NULL;
            any |= matches;
            if (!other) continue;
            split = true;
            struct diagnostic *d =
                complain(g->at, "\"%s\" tells the layers of '%s' apart: %s %s", g->pattern,
                         w->weight->tensor, matches ? "not" : "only", other);
            add_help(d, "all layers of a repeat share one number; {i} or * stands for any of them");
        }
        if (!any && !split) stands_for_nothing(l, g);
    }
}
