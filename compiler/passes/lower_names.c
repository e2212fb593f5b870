/* Stored names with their numbers in. Two weights have different names in the text of the
 * architecture and yet one in a file: "w{i}1" in layer 1 and "w1{i}" in layer 1, or "l.{i}.w" in a
 * repeat and "l.0.w" beside it. A file with a name twice cannot be read. */
#include "passes/lower.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

/* Names that are written out to be compared: few models have any. */
enum { NAMES_LIMIT = 1 << 20 };

const char *lower_numbered(const char *name, int64_t layer, int64_t part)
{
    struct text t = {0};
    for (const char *c = name; *c;) {
        bool i = !strncmp(c, "{i}", 3), e = !strncmp(c, "{e}", 3);
        if (i || e)
            text_add(&t, "%lld", (long long)(i ? layer : part));
        else
            text_add_bytes(&t, c, 1);
        c += i || e ? 3 : 1;
    }
    return t.bytes;
}

/* The name with one # for every stretch of digits and numbers: what can become equal is equal in
 * this. two_numbers: in one stretch, and the name alone can be one name twice. */
static const char *outline(const char *name, bool *two_numbers)
{
    struct text t = {0};
    int numbers = 0;
    bool inside = false;
    *two_numbers = false;
    for (const char *c = name; *c;) {
        const bool number = !strncmp(c, "{i}", 3) || !strncmp(c, "{e}", 3),
                   counts = number || isdigit((unsigned char)*c);
        if (!inside) numbers = 0;
        numbers += number;
        *two_numbers |= numbers > 1;
        if (!counts || !inside) text_add_bytes(&t, counts ? "#" : c, 1);
        inside = counts;
        c += number ? 3 : 1;
    }
    return intern(t.bytes);
}

typedef VECTOR(const char *) name_list;

/* All names of a weight; false: too many. */
static bool add_names(name_list *all, const struct declared_weight *d)
{
    const bool by_layer = d->region->direction != ONCE;
    const int64_t parts = d->weight->stack ? d->weight->stack : 1,
                  layers = by_layer ? d->region->count : 1;
    if (layers > NAMES_LIMIT || parts > NAMES_LIMIT || layers * parts > NAMES_LIMIT - all->n)
        return false;
    for (int64_t i = 0; i < layers; i++) {
        bool mine = d->body->layers.n == 0;
        for (int k = 0; k < d->body->layers.n; k++)
            mine |= i >= d->body->layers.item[k].from && i < d->body->layers.item[k].to;
        for (int64_t e = 0; mine && e < parts; e++)
            PUSH(all, intern(lower_numbered(d->weight->tensor, i, e)));
    }
    return true;
}

static int by_address(const void *a, const void *b)
{
    const char *const *x = a, *const *y = b;
    return (*x > *y) - (*x < *y);
}

/* Interned names that are equal are one address. */
static const char *twice(name_list *all)
{
    qsort(all->item, (size_t)all->n, sizeof *all->item, by_address);
    for (int i = 1; i < all->n; i++)
        if (all->item[i] == all->item[i - 1]) return all->item[i];
    return NULL;
}

static bool told_apart(const struct declared_weight *a, const struct declared_weight *b)
{
    name_list all = {0};
    const bool few = add_names(&all, a) && (a == b || add_names(&all, b));
    const char *same = few && all.n ? twice(&all) : NULL;
    if (few && !same) return true;
    struct diagnostic *d =
        few ? complain(a->at, "two weights are stored as '%s'", same)
            : complain(a->at, "the numbers in '%s' are too many to tell its names from others",
                       a->weight->tensor);
    if (a != b)
        add_note(d, b->at, "the other one");
    else
        add_help(d, "put something between the numbers: {i}.{e}");
    return false;
}

void lower_names(struct lower *l)
{
    const char **lines = TAKE_MANY(const char *, l->declared.n + 1);
    for (int i = 0; i < l->declared.n; i++) {
        const struct declared_weight *a = &l->declared.item[i];
        bool two_numbers;
        lines[i] = outline(a->weight->tensor, &two_numbers);
        if (two_numbers && !told_apart(a, a)) return;
        for (int k = 0; k < i; k++)
            /* one name in other layers of a loop is checked where it is declared */
            if (lines[k] == lines[i] &&
                strcmp(a->weight->tensor, l->declared.item[k].weight->tensor) != 0 &&
                !told_apart(a, &l->declared.item[k]))
                return;
    }
}
