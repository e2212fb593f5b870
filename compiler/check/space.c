/* A plan with alternatives is a space of plans. Its files are read and its keys collected once. A
 * point is that collection with one alternative for each open key, evaluated again, so every rule
 * of the checker applies to every point, and ten thousand points cost ten thousand checks but read
 * no file. An error in a point is returned as a reason, not reported as a diagnostic. */
#include "check/check.h"

#include <string.h>

/* The slot of an open key, by its path. */
static struct slot *slot_of(struct checker *c, const char *path)
{
    enum key_id key = key_find_path(path);
    if (key != KEY_COUNT) return &c->key[key];
    struct declared *d = !strncmp(path, "model.", 6) ? hyper_find(c, path + 6) : NULL;
    if (!d) bug("'%s' is open and no key", path);
    return &d->slot;
}

static bool wants_list(struct checker *c, const char *path)
{
    enum key_id key = key_find_path(path);
    if (key != KEY_COUNT) return key_rows[key].type == KEY_LIST;
    return hyper_find(c, path + 6)->type == HYPER_LIST;
}

static const char *written(const struct ast *e)
{
    size_t n;
    const char *bytes = source_bytes(e->at.file, &n);
    return intern_bytes(bytes + e->at.from, (size_t)(e->at.to - e->at.from));
}

/* Points of a space, and choices of one key. */
enum { SPACE_LIMIT = 100000 };

struct choices {
    VECTOR(const char *) text;
    VECTOR(const struct ast *) ast;
};

static void add_choice(struct choices *all, const char *text, const struct ast *e)
{
    for (int i = 0; i < all->text.n; i++)
        if (all->text.item[i] == text) return;
    PUSH(&all->text, text);
    PUSH(&all->ast, e);
}

/* 1..8 is eight numbers; false after a diagnostic. */
static bool add_range(struct checker *c, enum section_id section, const struct ast *e,
                      struct choices *all)
{
    struct constant from, to;
    bool open = false;
    if (!value_evaluate(c, section, e->kid[0], &from, &open) ||
        !value_evaluate(c, section, e->kid[1], &to, &open)) {
        if (open) complain(e->at, "the ends of this range depend on a key that is open");
        return false;
    }
    int64_t more;
    if (__builtin_sub_overflow(to.top, from.top, &more) || more >= SPACE_LIMIT) {
        add_help(complain(e->at,
                          "a range of more than %s choices: check judges every point of a space",
                          text_count(SPACE_LIMIT)),
                 "write the ones that matter: 1 | 2 | 4");
        return false;
    }
    const bool plain = all->text.n == 0; /* nothing that these could repeat */
    for (int64_t x = from.top; x <= to.top; x++) {
        struct ast *number = TAKE(struct ast);
        *number = (struct ast){
            .kind = AST_NUMBER, .at = e->at, .text = intern_format("%lld", (long long)x)};
        if (plain) {
            PUSH(&all->text, number->text);
            PUSH(&all->ast, number);
        } else
            add_choice(all, number->text, number);
    }
    return true;
}

static int standard_of(enum key_id key, const struct choices *all)
{
    for (int i = 0; key != KEY_COUNT && i < all->text.n; i++)
        if (!strcmp(all->text.item[i], key_rows[key].fallback)) return i;
    return 0;
}

static bool add_axis(struct space *s, struct checker *c, const char *path)
{
    const struct slot *slot = slot_of(c, path);
    const struct ast *value = slot->entry->kid[1];
    enum key_id key = key_find_path(path);
    struct choices all = {0};
    for (int i = 0; i < (value->kind == AST_ALTERNATIVES ? value->n : 1); i++) {
        const struct ast *e = value->kind == AST_ALTERNATIVES ? value->kid[i] : value;
        if (e->kind == AST_RANGE && !wants_list(c, path)) {
            if (!add_range(c, key != KEY_COUNT ? key_rows[key].section : S_model, e, &all))
                return false;
        } else {
            add_choice(&all, written(e), e);
        }
    }
    s->axis[s->n_axes] = (struct axis){
        .key = path, .choice = all.text.item, .n = all.text.n, .standard = standard_of(key, &all)};
    s->tree[s->n_axes++] = all.ast.item;
    if (__builtin_mul_overflow(s->points, all.text.n, &s->points)) s->points = INT64_MAX;
    return true;
}

/* What to close so that few enough points are left: keys with the most choices first. */
static void help_to_close(struct diagnostic *d, const struct space *s)
{
    struct text words = {0};
    double left = 1;
    bool *closed = TAKE_MANY(bool, s->n_axes);
    for (int k = 0; k < s->n_axes; k++) left *= s->axis[k].n;
    while (left > SPACE_LIMIT) {
        int most = -1;
        for (int k = 0; k < s->n_axes; k++)
            if (!closed[k] && (most < 0 || s->axis[k].n > s->axis[most].n)) most = k;
        closed[most] = true;
        left /= s->axis[most].n;
        text_add(&words, "%s--set '%s=%s'", words.length ? " " : "", s->axis[most].key,
                 s->axis[most].choice[0]);
    }
    add_help(d,
             "close the keys with the most choices: %s leaves %s points. Or give keys fewer "
             "choices",
             words.bytes, text_count((int64_t)(left + 0.5)));
}

/* Every point is checked and laid out, so there must be an end to them. */
static bool few_enough(struct space *s, struct checker *c)
{
    struct text t = {0};
    double points = 1;
    for (int i = 0; i < c->open.n; i++) {
        if (!add_axis(s, c, c->open.item[i])) return false;
        text_add(&t, "%s%s %s", i ? " x " : "", text_count(s->axis[i].n), s->axis[i].key);
        points *= s->axis[i].n;
    }
    if (points <= SPACE_LIMIT) return true;
    help_to_close(complain(slot_of(c, c->open.item[c->open.n - 1])->at,
                           "a space of %s points (%s): every one is judged, at most %s",
                           points < 1e18 ? text_count((int64_t)points) : "far too many", t.bytes,
                           text_count(SPACE_LIMIT)),
                  s);
    return false;
}

/* What check_end writes in is copied; trees and names are shared. */
static struct checker *copy_of(const struct checker *old)
{
    struct checker *c = TAKE(struct checker);
    *c = *old;
    c->declared.item = TAKE_MANY(struct declared, old->declared.n);
    c->declared.room = old->declared.n;
    if (old->declared.n)
        memcpy(c->declared.item, old->declared.item,
               sizeof *old->declared.item * (size_t)old->declared.n);
    c->constant.item = TAKE_MANY(struct file_constant, old->constant.n);
    c->constant.room = old->constant.n;
    if (old->constant.n)
        memcpy(c->constant.item, old->constant.item,
               sizeof *old->constant.item * (size_t)old->constant.n);
    memset(&c->open, 0, sizeof c->open);
    return c;
}

/* The space of a checker whose keys `tried` found open; NULL after a diagnostic. */
static struct space *space_of(struct checker *c, struct checker *tried)
{
    struct space *s = TAKE(struct space);
    s->axis = TAKE_MANY(struct axis, tried->open.n);
    s->points = 1;
    s->trainer = c->naming[S_trainer].name;
    s->checker = c;
    s->tree = TAKE_MANY(const struct ast **, tried->open.n);
    return few_enough(s, tried) ? s : NULL;
}

struct plan *plan_or_space_load(const char *path, const char *const *set, int n_set,
                                struct space **space)
{
    int before = error_count();
    *space = NULL;
    struct checker *c = check_begin(path, set, n_set);
    if (!c) return NULL;
    struct checker *tried = copy_of(c);
    struct plan *p = check_end(tried, before);
    if (!p && error_count() == before && tried->open.n) *space = space_of(c, tried);
    return p;
}

struct plan *space_plan(const struct space *s, const int *choice, const char **why)
{
    struct diagnostics_mark mark = diagnostics_mark();
    int before = error_count();
    struct checker *c = copy_of(s->checker);
    for (int k = 0; k < s->n_axes; k++) {
        struct slot *slot = slot_of(c, s->axis[k].key);
        struct ast *entry = TAKE(struct ast);
        *entry = *slot->entry;
        entry->kid = TAKE_MANY(struct ast *, entry->n);
        for (int i = 0; i < entry->n; i++) entry->kid[i] = slot->entry->kid[i];
        entry->kid[1] = (struct ast *)(uintptr_t)s->tree[k][choice[k]];
        slot->entry = entry;
    }
    struct plan *p = check_end(c, before);
    *why = p ? NULL : diagnostics_since(mark);
    if (!p && !*why) *why = "a key is left open";
    diagnostics_drop(mark);
    for (int k = 0; p && k < s->n_axes; k++)
        p->point = p->point * s->axis[k].n +
                   (slot_of(c, s->axis[k].key)->idle ? s->axis[k].standard : choice[k]);
    return p;
}
