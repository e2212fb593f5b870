/* Rates of a cluster: rows of efficiencies and measured grids. As with groups of weights there can
 * be many of each, so they are no sections and their keys get slots of their own. Rows come from
 * the blocks `rates NAME { … }` that the cluster names, from the cluster's file and from the plan's
 * own cluster block; a later row replaces an earlier one of the same key, twice in one block is a
 * mistake. --set cluster.efficiency.CLASS.ENGINE.TYPE gives all rows of that key another value. */
#include "check/check.h"

#include <string.h>

enum { LABELS = 4 }; /* class, engine, type, op */

struct rate_row {
    bool grid;
    const struct ast *block;
    const char *label[LABELS]; /* interned; NULL: not given */
    struct span at;
    struct slot key[KEY_COUNT]; /* of its section */
};
struct rate_set {
    const char *path; /* "gemm.cublaslt": what it stands for */
    struct slot value;
};

/* What the axes and the values of a grid are, by class; "" ends the axes. */
static const struct grid_kind {
    const char *class, *axis[GRID_AXES];
    enum grid_unit unit;
} grid_kinds[] = {
    {"gemm", {"m", "n", "k"}, GRID_GFLOPS},
    {"grouped_gemm", {"rows", "n", "k"}, GRID_GFLOPS},
    {"attention", {"sequence", "width", NULL}, GRID_GFLOPS},
    {"attention_grad", {"sequence", "width", NULL}, GRID_GFLOPS},
    {"map", {"bytes", NULL, NULL}, GRID_NANOSECONDS},
    {"row", {"bytes", NULL, NULL}, GRID_NANOSECONDS},
    {"column", {"bytes", NULL, NULL}, GRID_NANOSECONDS},
    {"total", {"bytes", NULL, NULL}, GRID_NANOSECONDS},
    {"move", {"bytes", NULL, NULL}, GRID_NANOSECONDS},
    {"update", {"bytes", NULL, NULL}, GRID_NANOSECONDS},
    {"copy", {"bytes", NULL, NULL}, GRID_GIGABYTES},
    {"gather", {"bytes", NULL, NULL}, GRID_MICROSECONDS},
    {"reduce_scatter", {"bytes", NULL, NULL}, GRID_MICROSECONDS},
    {"all_reduce", {"bytes", NULL, NULL}, GRID_MICROSECONDS},
    {"sum", {"bytes", NULL, NULL}, GRID_MICROSECONDS},
};
enum { EFFICIENCY_CLASSES = 10 }; /* the first of them */
static const char *const unit_key[] = {[GRID_GFLOPS] = "gflops",
                                       [GRID_NANOSECONDS] = "nanoseconds",
                                       [GRID_GIGABYTES] = "gigabytes",
                                       [GRID_MICROSECONDS] = "microseconds"};

static const struct grid_kind *kind_of(const char *class)
{
    for (size_t i = 0; i < COUNT_OF(grid_kinds); i++)
        if (!strcmp(grid_kinds[i].class, class)) return &grid_kinds[i];
    return NULL;
}

enum grid_unit grid_unit_of(const char *class, int *axes)
{
    const struct grid_kind *k = kind_of(class);
    if (!k) bug("no class of grids '%s'", class);
    *axes = 0;
    while (*axes < GRID_AXES && k->axis[*axes]) ++*axes;
    return k->unit;
}

const char *const *grid_axis_names(const char *class) { return kind_of(class)->axis; }

const char *grid_unit_name(enum grid_unit unit) { return unit_key[unit]; }

static enum section_id section_of(const struct rate_row *r)
{
    return r->grid ? S_grid : S_efficiency;
}

static int element_named(const char *word)
{
    return !word ? -1 : words_index(key_rows[K_precision_compute].words, word);
}

/* The class, an engine, perhaps a type, perhaps an op. False after a diagnostic. */
static bool read_labels(struct rate_row *r, const struct ast *head)
{
    const char *what = r->grid ? "grid" : "efficiency", *classes[COUNT_OF(grid_kinds)];
    int n = r->grid ? (int)COUNT_OF(grid_kinds) : EFFICIENCY_CLASSES;
    struct text all = {0};
    for (int i = 0; i < n; i++) {
        classes[i] = grid_kinds[i].class;
        text_add(&all, "%s%s", i ? ", " : "", classes[i]);
    }
    if (head->n < 3 || head->n > LABELS + (r->grid ? 1 : 0)) {
        add_help(complain(head->at, "a row is named by its class, its engine and its type"),
                 "%s gemm cublaslt bf16 { … }", what);
        return false;
    }
    for (int i = 1; i < head->n; i++) {
        if (head->kid[i]->kind != AST_NAME && head->kid[i]->kind != AST_STRING) {
            complain(head->kid[i]->at, "a row is named by words");
            return false;
        }
        r->label[i - 1] = head->kid[i]->text;
    }
    const struct grid_kind *kind = kind_of(r->label[0]);
    if (!kind || (!r->grid && kind - grid_kinds >= EFFICIENCY_CLASSES)) {
        struct diagnostic *d =
            complain(head->kid[1]->at, "there is no class of kernels '%s'", r->label[0]);
        const char *near = nearest_name(r->label[0], classes, n);
        if (near)
            add_help(d, "did you mean '%s'?", near);
        else
            add_help(d, "the classes are %s", all.bytes);
        return false;
    }
    if (r->label[2] && element_named(r->label[2]) < 0) {
        add_help(complain(head->kid[3]->at, "'%s' is no element type", r->label[2]),
                 "the types are %s", words_text(key_rows[K_precision_compute].words, true));
        return false;
    }
    return true;
}

static bool same_row(const struct rate_row *a, const struct rate_row *b)
{
    for (int i = 0; i < LABELS; i++)
        if (a->label[i] != b->label[i]) return false;
    return a->grid == b->grid;
}

void rates_collect(struct checker *c, const struct ast *block)
{
    const struct ast *head = block->kid[0], *items = block->kid[1];
    struct rate_row *r = TAKE(struct rate_row);
    *r = (struct rate_row){
        .grid = !strcmp(head->kid[0]->text, "grid"), .block = block, .at = head->at};
    if (!read_labels(r, head)) return;
    enum section_id s = section_of(r);
    for (int i = 0; i < items->n; i++) {
        const struct ast *item = items->kid[i];
        enum key_id key = item->kind == AST_ENTRY ? key_find(s, item->text) : KEY_COUNT;
        if (item->kind != AST_ENTRY)
            complain(item->kid[0]->at, "a row of rates holds entries only");
        else if (key == KEY_COUNT)
            unknown_key(c, section_rows[s].path, item->text, item->kid[0]->at);
        else if (r->key[key].entry)
            add_note(complain(item->at, "%s is given twice", item->text), r->key[key].at,
                     "the first time");
        else
            r->key[key] = (struct slot){.layer = LAYER_CLUSTER, .entry = item, .at = item->at};
    }
    PUSH(&c->rate, r);
}

/* The rows of the blocks that an entry `rates = [hopper]` names. */
static void collect_listed(struct checker *c, enum key_id key)
{
    const struct ast *value = c->key[key].entry ? c->key[key].entry->kid[1] : NULL;
    if (!value) return;
    for (int i = 0; i < (value->kind == AST_LIST ? value->n : 1); i++) {
        const struct ast *name = value->kind == AST_LIST ? value->kid[i] : value;
        const struct named_block *found = NULL;
        const char **names = TAKE_MANY(const char *, c->rates.n + 1);
        for (int k = 0; k < c->rates.n; k++) {
            names[k] = c->rates.item[k].name;
            if (name->text && names[k] == name->text) found = &c->rates.item[k];
        }
        if (!found) {
            struct diagnostic *d =
                complain(name->at, "there is no block of rates '%s'", name->text ? name->text : "");
            const char *near = name->text ? nearest_name(name->text, names, c->rates.n) : NULL;
            if (near)
                add_help(d, "did you mean '%s'?", near);
            else
                add_help(d, "rates NAME { efficiency …  grid … } stands outside the cluster, in "
                            "its file or one that it uses");
            continue;
        }
        const struct ast *items = found->block->kid[1];
        for (int k = 0; k < items->n; k++) {
            const struct ast *item = items->kid[k];
            const char *word = item->kind == AST_BLOCK ? item->kid[0]->kid[0]->text : "";
            if (!strcmp(word, "efficiency") || !strcmp(word, "grid"))
                rates_collect(c, item);
            else
                add_help(complain(item->at, "rates hold rows only"),
                         "efficiency CLASS ENGINE TYPE { … }, grid CLASS ENGINE TYPE { … }");
        }
    }
}

/* Rows of named blocks come before the cluster's own. */
void rates_collect_named(struct checker *c)
{
    VECTOR(struct rate_row *) own = {0};
    for (int i = 0; i < c->rate.n; i++) PUSH(&own, c->rate.item[i]);
    c->rate.n = 0;
    collect_listed(c, K_cluster_rates);
    collect_listed(c, K_trainer_rates);
    for (int i = 0; i < own.n; i++) PUSH(&c->rate, own.item[i]);
}

/* `--set cluster.efficiency.gemm=0.7`; true when the path is one of a row. */
bool rates_place(struct checker *c, const char *path, const struct ast *entry)
{
    static const char prefix[] = "cluster.efficiency.";
    if (!strncmp(path, "cluster.grid.", 13) || !strcmp(path, "cluster.grid") ||
        !strcmp(path, "cluster.efficiency") || !strcmp(path, "cluster.efficiency.value")) {
        add_help(complain(entry->at, "%s is a row with a name, not a key", path),
                 "cluster.efficiency.gemm = 0.7, cluster.efficiency.gemm.cublaslt.bf16 = 0.7");
        return true;
    }
    if (strncmp(path, prefix, sizeof prefix - 1)) return false;
    struct rate_set set = {intern(path + sizeof prefix - 1),
                           {.layer = LAYER_SET, .entry = entry, .at = entry->at}};
    for (int i = 0; i < c->rate_set.n; i++) /* the last counts */
        if (c->rate_set.item[i]->path == set.path) {
            *c->rate_set.item[i] = set;
            return true;
        }
    struct rate_set *kept = TAKE(struct rate_set);
    *kept = set;
    PUSH(&c->rate_set, kept);
    return true;
}

/* Whether "gemm.cublaslt" stands for a row: its first labels. */
static bool stands_for(const char *path, const struct rate_row *r)
{
    for (int i = 0; *path; i++) {
        size_t n = strcspn(path, ".");
        if (i == LABELS || !r->label[i] || strlen(r->label[i]) != n ||
            strncmp(r->label[i], path, n))
            return false;
        path += n + (path[n] == '.');
    }
    return true;
}

static bool is_open(const struct slot *slot)
{
    const struct ast *value = slot->entry->kid[1];
    if (value->kind != AST_ALTERNATIVES && value->kind != AST_RANGE) return false;
    complain(value->at, "a row's value cannot be left open");
    return true;
}

void rates_check(struct checker *c)
{
    for (int i = 0; i < c->rate.n; i++) {
        struct rate_row *r = c->rate.item[i];
        for (int k = 0; k < KEY_COUNT; k++)
            if (r->key[k].entry && r->key[k].state == UNSEEN && !is_open(&r->key[k]))
                value_of_key(
                    c, (enum key_id)k, &r->key[k],
                    intern_format("%s %s", section_rows[section_of(r)].path, key_rows[k].name));
        if (!r->grid && !r->key[K_efficiency_value].entry)
            add_help(complain(r->at, "this row says no value"), "value = 0.7");
    }
    for (int i = 0; i < c->rate_set.n; i++) {
        struct rate_set *s = c->rate_set.item[i];
        bool some = false;
        for (int k = 0; k < c->rate.n; k++)
            some |= !c->rate.item[k]->grid && stands_for(s->path, c->rate.item[k]);
        if (!some)
            complain(s->value.at, "the cluster has no row cluster.efficiency.%s", s->path);
        else if (!is_open(&s->value))
            value_of_key(c, K_efficiency_value, &s->value, s->path);
    }
}

/* ── The rows of a plan ──────────────────────────────────────────────────────── */

static const struct constant *worth(const struct rate_row *r, enum key_id key)
{
    struct constant *v = TAKE(struct constant);
    if (r->key[key].state == KNOWN) return &r->key[key].value;
    return key_default(key, v) ? v : NULL;
}

static double number_of(const struct rate_row *r, enum key_id key)
{
    const struct constant *v = worth(r, key);
    return v ? v->number : 0;
}

static int word_of(const struct rate_row *r, enum key_id key)
{
    return words_index(key_rows[key].words, worth(r, key)->text);
}

static const char *text_of(const struct rate_row *r, enum key_id key)
{
    const struct constant *v = worth(r, key);
    return v ? v->text : NULL;
}

static struct provenance provenance_of(const struct rate_row *r)
{
    bool g = r->grid;
    return (struct provenance){number_of(r, g ? K_grid_spread : K_efficiency_spread),
                               (enum basis)word_of(r, g ? K_grid_basis : K_efficiency_basis),
                               text_of(r, g ? K_grid_source : K_efficiency_source),
                               text_of(r, g ? K_grid_date : K_efficiency_date), r->at};
}

static double *list_of(const struct rate_row *r, enum key_id key, int *n)
{
    const struct constant *v = worth(r, key);
    *n = v ? v->n : 0;
    double *all = TAKE_MANY(double, *n + 1);
    for (int i = 0; i < *n; i++) all[i] = v->item[i].number;
    return all;
}

static void resolve_efficiency(const struct checker *c, const struct rate_row *r,
                               struct efficiency *e)
{
    int n;
    double *tile = list_of(r, K_efficiency_tile, &n);
    if (n && n != 2)
        add_help(complain(r->key[K_efficiency_tile].at, "a tile is two numbers"),
                 "tile = [128, 256]");
    *e = (struct efficiency){
        .class = r->label[0],
        .engine = r->label[1],
        .type = element_named(r->label[2]),
        .order = (enum order)word_of(r, K_efficiency_order),
        .value = number_of(r, K_efficiency_value),
        .half = number_of(r, K_efficiency_half),
        .tile = {n == 2 ? (int64_t)tile[0] : 128, n == 2 ? (int64_t)tile[1] : 128},
        .width = (int64_t)number_of(r, K_efficiency_width),
        .split = worth(r, K_efficiency_split)->truth,
        .from = provenance_of(r)};
    for (int i = 0; i < c->rate_set.n; i++)
        if (stands_for(c->rate_set.item[i]->path, r) && c->rate_set.item[i]->value.state == KNOWN)
            e->value = c->rate_set.item[i]->value.value.number;
}

static void resolve_grid(const struct rate_row *r, struct grid *g)
{
    const struct grid_kind *kind = kind_of(r->label[0]);
    *g = (struct grid){.class = r->label[0],
                       .engine = r->label[1],
                       .type = element_named(r->label[2]),
                       .op = r->label[3],
                       .order = (enum order)word_of(r, K_grid_order),
                       .ranks = (int64_t)number_of(r, K_grid_ranks),
                       .unit = kind->unit,
                       .from = provenance_of(r)};
    int64_t points = 1;
    for (; g->axes < GRID_AXES && kind->axis[g->axes]; g->axes++) {
        enum key_id key = key_find(S_grid, kind->axis[g->axes]);
        int *n = &g->n[g->axes];
        double *axis = g->axis[g->axes] = list_of(r, key, n);
        if (!*n) complain(r->at, "a grid of %s wants the axis %s", g->class, kind->axis[g->axes]);
        for (int i = 1; i < *n; i++)
            if (axis[i] <= axis[i - 1]) {
                complain(r->key[key].at, "the points of an axis rise, %g does not", axis[i]);
                break;
            }
        points *= *n;
    }
    int n;
    enum key_id values = key_find(S_grid, unit_key[g->unit]);
    g->value = list_of(r, values, &n);
    if (points && n != points)
        complain(r->key[values].at.file ? r->key[values].at : r->at,
                 "a grid of %s wants %lld %s, one for each point of its axes; this one has %d",
                 g->class, (long long)points, unit_key[g->unit], n);
    for (int k = 0; k < KEY_COUNT; k++) {
        if (!r->key[k].entry || key_rows[k].type != KEY_LIST || k == (int)values) continue;
        bool axis = false;
        for (int i = 0; i < g->axes; i++) axis |= !strcmp(kind->axis[i], key_rows[k].name);
        if (!axis) complain(r->key[k].at, "a grid of %s has no %s", g->class, key_rows[k].name);
    }
}

/* Of two rows of one key the later counts; order, width, ranks and arch are of the key too. */
static bool replaces(const struct rate_row *b, const struct rate_row *a)
{
    if (!same_row(a, b)) return false;
    if (a->grid)
        return word_of(a, K_grid_order) == word_of(b, K_grid_order) &&
               number_of(a, K_grid_ranks) == number_of(b, K_grid_ranks);
    return word_of(a, K_efficiency_order) == word_of(b, K_efficiency_order) &&
           number_of(a, K_efficiency_width) == number_of(b, K_efficiency_width);
}

void rates_resolve(const struct checker *c, struct plan *p)
{
    struct cluster *m = &p->cluster;
    m->efficiency = TAKE_MANY(struct efficiency, c->rate.n + 1);
    m->grid = TAKE_MANY(struct grid, c->rate.n + 1);
    VECTOR(const struct rate_row *) here = {0};
    for (int i = 0; i < c->rate.n; i++) {
        const struct rate_row *r = c->rate.item[i];
        const char *arch = r->grid ? NULL : text_of(r, K_efficiency_arch);
        if (!arch || (m->arch && !strcmp(arch, m->arch))) PUSH(&here, r);
    }
    for (int i = 0; i < here.n; i++) {
        bool old = false;
        for (int k = i + 1; k < here.n && !old; k++) old = replaces(here.item[k], here.item[i]);
        if (old) continue;
        if (here.item[i]->grid)
            resolve_grid(here.item[i], &m->grid[m->grids++]);
        else
            resolve_efficiency(c, here.item[i], &m->efficiency[m->efficiencies++]);
    }
}
