/* Builds graphs: values with unique names, nodes whose results follow from their operands, and the
 * copying that every pass consists of. A pass reads the old graph in order and appends to a new
 * one, so no list changes while it is walked. The mapping from old to new values is kept in `note`
 * of the old values; so two passes never run over one graph at the same time. */
#include "ir/ir.h"

#include <string.h>

/* ── names ───────────────────────────────────────────────────────────────────── */
/* Open addressing over interned addresses; `next` is the number to try first when the name is a
 * stem. */
struct name_entry {
    const char *name;
    int next;
};
struct name_set {
    struct name_entry *entry;
    size_t room, used;
};

static struct name_entry *name_find(const struct name_set *s, const char *name)
{
    size_t at = ((size_t)(uintptr_t)name >> 4) * 0x9E3779B97F4A7C15u;
    for (at &= s->room - 1; s->entry[at].name && s->entry[at].name != name;
         at = (at + 1) & (s->room - 1)) {}
    return &s->entry[at];
}

/* Generated C spells a name with '_' for '.', so that is the spelling which must be unique. */
static const char *cleaned(const char *name)
{
    if (!strchr(name, '.')) return intern(name);
    char *c = TAKE_MANY(char, strlen(name) + 1);
    for (size_t i = 0; name[i]; i++) c[i] = name[i] == '.' ? '_' : name[i];
    return intern(c);
}

static bool name_add(struct graph *g, const char *spelling)
{
    const char *name = cleaned(spelling);
    struct name_set *s = g->names;
    if (!s) s = g->names = TAKE(struct name_set);
    if (s->used * 2 >= s->room) {
        struct name_set old = *s;
        s->room = old.room ? old.room * 2 : 256;
        s->entry = TAKE_MANY(struct name_entry, s->room);
        for (size_t i = 0; i < old.room; i++)
            if (old.entry[i].name) *name_find(s, old.entry[i].name) = old.entry[i];
    }
    struct name_entry *e = name_find(s, name);
    if (e->name) return false;
    *e = (struct name_entry){name, 1};
    s->used++;
    return true;
}

/* "h.3" has the stem "h": numbers are given out, never stacked. */
static const char *stem_of(const char *name)
{
    size_t n = strlen(name), end = n;
    while (end > 0 && name[end - 1] >= '0' && name[end - 1] <= '9') end--;
    return end < n && end > 1 && name[end - 1] == '.' ? intern_bytes(name, end - 1) : intern(name);
}

const char *fresh_name(struct graph *g, const char *name)
{
    const char *stem = stem_of(name);
    if (name_add(g, stem)) return stem;
    for (;;) {
        const char *one = intern_format("%s.%d", stem, name_find(g->names, cleaned(stem))->next++);
        if (name_add(g, one)) return one;
    }
}

void names_clear(struct graph *g) { g->names = NULL; }

const char *name_keep(struct graph *g, const char *name)
{
    return name_add(g, name) ? name : fresh_name(g, name);
}

/* ── shapes and values ───────────────────────────────────────────────────────── */
struct shape shape_of(int rank, const int64_t *dim)
{
    struct shape s = {.rank = rank};
    for (int i = 0; i < rank; i++) s.dim[i] = dim[i];
    return s;
}

int64_t shape_count(struct shape s)
{
    int64_t n = 1;
    for (int i = 0; i < s.rank; i++)
        if (__builtin_mul_overflow(n, s.dim[i], &n))
            bug("a shape of more than 2^63 elements got past the checker");
    return n;
}

struct shape weight_shape(const struct weight *w)
{
    struct shape s = w->value->shape;
    return w->balances && s.rank > 1 ? shape_of(1, &s.dim[s.rank - 1]) : s;
}

double weight_mean_load(const struct graph *g, const struct weight *w)
{
    const struct facts *f = &g->facts;
    if (!w->balances) return 0;
    return (double)f->tokens * (double)(f->accumulation * f->fsdp * f->dp) * (double)w->choices /
           (double)shape_columns(w->value->shape);
}

int64_t weight_alignment(const struct graph *g) { return 256 / element_bytes(g->facts.compute); }

int64_t unit_together(const struct graph *g, const struct unit *u)
{
    int64_t n = 0;
    for (int i = 0; i < g->weight.n; i++) {
        const struct weight *w = g->weight.item[i];
        if (w->balances && w->value->shape.rank > 1 && !strcmp(w->unit, u->name))
            n += round_up(shape_count(w->value->shape), weight_alignment(g));
    }
    return n;
}

int64_t shape_columns(struct shape s) { return s.rank ? s.dim[s.rank - 1] : 1; }
int64_t shape_rows(struct shape s) { return shape_count(s) / shape_columns(s); }

bool shape_same(struct shape a, struct shape b)
{
    if (a.rank != b.rank) return false;
    for (int i = 0; i < a.rank; i++)
        if (a.dim[i] != b.dim[i]) return false;
    return true;
}

const char *shape_text(struct shape s)
{
    struct text t = {0};
    text_add(&t, "[");
    for (int i = 0; i < s.rank; i++) text_add(&t, "%s%lld", i ? ", " : "", (long long)s.dim[i]);
    text_add(&t, "]");
    return t.bytes;
}

int64_t element_bytes(enum element type)
{
    switch (type) {
    case F32: return 4;
    case BF16: return 2;
    case F64: return 8;
    case I32: return 4;
    }
    bug("element type %d", (int)type);
}

struct value *value_new(struct graph *g, const char *name, enum element type, struct shape shape)
{
    struct value *v = TAKE(struct value);
    *v = (struct value){.name = intern(name), .type = type, .shape = shape};
    name_add(g, v->name);
    return v;
}

/* ── attributes ──────────────────────────────────────────────────────────────── */
struct attr attr_whole(const char *key, int64_t x)
{
    return (struct attr){.key = intern(key), .kind = ATTR_WHOLE, .whole = x};
}
struct attr attr_real(const char *key, double x)
{
    return (struct attr){.key = intern(key), .kind = ATTR_REAL, .real = x};
}
struct attr attr_word(const char *key, const char *word)
{
    return (struct attr){.key = intern(key), .kind = ATTR_WORD, .word = intern(word)};
}

int attr_dims(struct attr *attr, struct shape s)
{
    for (int i = 0; i < s.rank; i++) attr[i] = attr_whole(dim_names[i], s.dim[i]);
    return s.rank;
}

const struct attr *attr_find(const struct node *n, const char *key)
{
    for (int i = 0; i < n->n_attr; i++)
        if (!strcmp(n->attr[i].key, key)) return &n->attr[i];
    return NULL;
}

static const struct attr *attr_must(const struct node *n, const char *key)
{
    const struct attr *a = attr_find(n, key);
    if (!a) bug("%s has no attribute '%s'", op_rows[n->op].name, key);
    return a;
}

int64_t attr_get(const struct node *n, const char *key) { return attr_must(n, key)->whole; }
int64_t attr_or(const struct node *n, const char *key, int64_t otherwise)
{
    const struct attr *a = attr_find(n, key);
    return a ? a->whole : otherwise;
}
double attr_get_real(const struct node *n, const char *key)
{
    const struct attr *a = attr_must(n, key);
    return a->kind == ATTR_WHOLE ? (double)a->whole : a->real;
}
const char *attr_get_word(const struct node *n, const char *key) { return attr_must(n, key)->word; }

/* ── nodes ───────────────────────────────────────────────────────────────────── */
static struct node *node_new(enum op op, const struct operand *in, int n_in, int n_out,
                             const struct attr *attr, int n_attr)
{
    struct node *n = TAKE(struct node);
    n->op = op;
    n->n_in = n_in, n->n_out = n_out, n->n_attr = n_attr;
    n->in = TAKE_MANY(struct operand, n_in);
    n->out = TAKE_MANY(struct value *, n_out);
    n->attr = TAKE_MANY(struct attr, n_attr);
    for (int i = 0; i < n_in; i++) n->in[i] = in[i];
    for (int i = 0; i < n_attr; i++) n->attr[i] = attr[i];
    return n;
}

struct node *build_node(struct build *b, enum op op, const struct operand *in, int n_in,
                        const struct attr *attr, int n_attr, const char **why)
{
    enum element type[4];
    struct shape shape[4];
    if (!op_infer(op, in, n_in, attr, n_attr, type, shape, why)) return NULL;
    struct node *n = node_new(op, in, n_in, op_rows[op].results, attr, n_attr);
    n->file = b->file, n->line = b->line, n->again = b->again;
    for (int i = 0; i < n->n_out; i++) {
        const char *stem = b->base ? b->base : op_rows[op].name;
        n->out[i] = value_new(b->graph, fresh_name(b->graph, stem), type[i], shape[i]);
        n->out[i]->node = n;
    }
    PUSH(&b->body->node, n);
    return n;
}

struct value *build_op(struct build *b, enum op op, const struct operand *in, int n_in,
                       const struct attr *attr, int n_attr)
{
    const char *why = NULL;
    struct node *n = build_node(b, op, in, n_in, attr, n_attr, &why);
    if (!n) bug("%s: %s", op_rows[op].name, why);
    return n->n_out ? n->out[0] : NULL;
}

struct value *build1(struct build *b, enum op op, struct operand a)
{
    return build_op(b, op, &a, 1, NULL, 0);
}
struct value *build2(struct build *b, enum op op, struct operand a, struct operand c)
{
    return build_op(b, op, (struct operand[]){a, c}, 2, NULL, 0);
}

/* ── looking up ──────────────────────────────────────────────────────────────── */
struct value *graph_starts(const struct graph *g)
{
    return g->input.n > 2 ? g->input.item[2] : NULL;
}

struct region *graph_region(const struct graph *g, const char *name)
{
    for (int i = 0; i < g->region.n; i++)
        if (!strcmp(g->region.item[i]->name, name)) return g->region.item[i];
    return NULL;
}

struct unit *graph_unit(const struct graph *g, const char *name)
{
    for (int i = 0; i < g->unit.n; i++)
        if (!strcmp(g->unit.item[i]->name, name)) return g->unit.item[i];
    return NULL;
}

const char *unit_shared_name(const struct unit *u) { return u->loop[0] ? u->loop : u->name; }

int64_t slot_elements(const struct graph *g, const char *unit)
{
    int64_t n = 0;
    for (int i = 0; i < g->unit.n; i++) {
        const struct unit *u = g->unit.item[i];
        if ((!strcmp(u->name, unit) || (u->loop[0] && !strcmp(u->loop, unit))) && u->elements > n)
            n = u->elements;
    }
    return n;
}

const char *slot_name(enum slot slot, const char *region, const struct unit *u)
{
    return intern_format("%s.%s.%s", slot == SLOT_GATHER ? "gather" : "slot", region,
                         unit_shared_name(u));
}

const char *shards_name(const struct unit *u)
{
    return intern_format("shards.%s", unit_shared_name(u));
}

const struct unit *slot_unit(const struct graph *g, const struct buffer *b)
{
    enum slot slot = b->kind == BUFFER_GATHERED ? SLOT_GATHER : SLOT_GRADIENT;
    const struct unit *found = NULL;
    for (int i = 0; i < g->region.n; i++)
        for (int k = 0; k < g->unit.n; k++) {
            const struct unit *u = g->unit.item[k];
            const char *name = b->kind == BUFFER_GRADIENT_SHARDS
                                   ? shards_name(u)
                                   : slot_name(slot, g->region.item[i]->name, u);
            if ((!found || u->elements > found->elements) && !strcmp(name, b->name)) found = u;
        }
    if (!found) bug("%s is a slot of no unit", b->name);
    return found;
}

struct buffer *graph_buffer(const struct graph *g, const char *name)
{
    for (int i = 0; i < g->buffer.n; i++)
        if (!strcmp(g->buffer.item[i]->name, name)) return g->buffer.item[i];
    return NULL;
}

struct buffer *kept_slot(const struct graph *g, const struct unit *u)
{
    if (g->facts.reshard == RESHARD_FORWARD) return NULL;
    for (int i = 0; i < g->region.n; i++) {
        struct buffer *b = graph_buffer(g, slot_name(SLOT_GATHER, g->region.item[i]->name, u));
        if (b && b->kind == BUFFER_GATHERED) return b;
    }
    return NULL;
}

struct buffer *slot_read(const struct graph *g, const struct region *r, const struct unit *u)
{
    struct buffer *b = graph_buffer(g, slot_name(SLOT_GATHER, r->name, u)), *kept = kept_slot(g, u);
    if (!b || b->kind != BUFFER_ALIAS) return b;
    if (kept) return kept;
    const char *other = r->within ? r->within : r->mirror;
    return other ? graph_buffer(g, slot_name(SLOT_GATHER, other, u)) : b;
}

struct buffer *graph_buffer_must(const struct graph *g, const char *name)
{
    struct buffer *b = graph_buffer(g, name);
    if (!b) bug("no bytes are laid out for %s", name);
    return b;
}

int64_t buffer_entries_at(const struct buffer *b, int step)
{
    if (b->kind == BUFFER_ALIAS || step < b->live_from || step > b->live_to) return 0;
    return b->entries - (b->idle_from <= step && step <= b->idle_to);
}

bool is_state(enum buffer_kind kind) { return kind <= BUFFER_MOMENT2; }

const char *state_name(enum buffer_kind kind)
{
    if (!is_state(kind) && kind != BUFFER_WEIGHTS) bug("%s is no state", buffer_kind_names[kind]);
    return intern_format("state.%s", buffer_kind_names[kind]);
}

enum buffer_kind node_state(const struct node *n)
{
    const char *name = attr_get_word(n, "name");
    int kind = BUFFER_MASTER;
    while (is_state((enum buffer_kind)kind) && strcmp(buffer_kind_names[kind], name)) kind++;
    if (!is_state((enum buffer_kind)kind)) bug("there is no state %s", name);
    return (enum buffer_kind)kind;
}

const char *kernel_class_name(const struct kernel *k)
{
    return k->class == KERNEL_CORE ? op_rows[k->core].name : kernel_class_names[k->class];
}

const struct kernel *graph_kernel(const struct graph *g, int number)
{
    for (int i = 0; i < g->kernel.n; i++)
        if (g->kernel.item[i].number == number) return &g->kernel.item[i];
    return NULL;
}

/* ── regions and copying ─────────────────────────────────────────────────────── */
struct region *region_new(struct graph *g, const char *name, enum phase phase,
                          enum direction direction, int64_t count, const char *loop)
{
    struct region *r = TAKE(struct region);
    r->name = intern(name), r->phase = phase, r->direction = direction, r->count = count,
    r->loop = intern(loop);
    PUSH(&g->region, r);
    return r;
}

struct body *body_new(struct region *r, const char *name)
{
    struct body *b = TAKE(struct body);
    b->name = intern(name);
    PUSH(&r->body, b);
    return b;
}

struct value *copied(const struct value *old)
{
    if (!old->note) bug("value %s is used before it is made", old->name);
    return old->note;
}

void copied_as(const struct value *old, struct value *now)
{
    ((struct value *)(uintptr_t)old)->note = now;
}

static struct value *value_copy(const struct value *old)
{
    struct value *v = TAKE(struct value);
    *v = (struct value){.name = old->name, .type = old->type, .shape = old->shape};
    copied_as(old, v);
    return v;
}

/* The names in the text of `old`, and no others. A name that an earlier pass made and dropped is
 * free, as it is when a pass starts from the text. */
static void names_of(struct graph *g, const struct graph *old)
{
    for (int i = 0; i < old->input.n; i++) name_add(g, old->input.item[i]->name);
    for (int i = 0; i < old->weight.n; i++) name_add(g, old->weight.item[i]->value->name);
    for (int i = 0; i < old->region.n; i++) {
        const struct region *r = old->region.item[i];
        for (int k = 0; k < r->carry.n; k++) {
            name_add(g, r->carry.item[k].value->name);
            name_add(g, r->carry.item[k].last->name);
        }
        for (int k = 0; k < r->body.n; k++)
            for (int j = 0; j < r->body.item[k]->node.n; j++) {
                const struct node *n = r->body.item[k]->node.item[j];
                for (int o = 0; o < n->n_out; o++) name_add(g, n->out[o]->name);
            }
    }
}

struct graph *graph_begin(const struct graph *old, enum level level)
{
    struct graph *g = TAKE(struct graph);
    g->level = level;
    g->facts = old->facts;
    names_of(g, old);
    for (int i = 0; i < old->input.n; i++) PUSH(&g->input, value_copy(old->input.item[i]));
    for (int i = 0; i < old->unit.n; i++) {
        struct unit *u = TAKE(struct unit);
        *u = *old->unit.item[i];
        PUSH(&g->unit, u);
    }
    for (int i = 0; i < old->weight.n; i++) {
        struct weight *w = TAKE(struct weight);
        *w = *old->weight.item[i];
        w->value = value_copy(old->weight.item[i]->value);
        w->value->weight = w;
        PUSH(&g->weight, w);
    }
    return g;
}

struct region *region_begin(struct graph *g, const struct region *old)
{
    struct region *r = region_new(g, old->name, old->phase, old->direction, old->count, old->loop);
    r->mirror = old->mirror, r->within = old->within;
    for (int i = 0; i < old->carry.n; i++) {
        const struct carry *c = &old->carry.item[i];
        PUSH(&r->carry, ((struct carry){.value = value_copy(c->value), .first = copied(c->first)}));
    }
    return r;
}

struct body *body_begin(struct region *r, const struct body *old)
{
    struct body *b = body_new(r, old->name);
    b->keep = old->keep, b->save = old->save;
    for (int i = 0; i < old->layers.n; i++) PUSH(&b->layers, old->layers.item[i]);
    return b;
}

struct node *node_copy(struct build *b, const struct node *old)
{
    struct node *n = node_new(old->op, old->in, old->n_in, old->n_out, old->attr, old->n_attr);
    n->file = old->file, n->line = old->line, n->again = old->again;
    n->kernel = old->kernel, n->lane = old->lane, n->step = old->step;
    for (int i = 0; i < n->n_in; i++)
        if (n->in[i].value) n->in[i].value = copied(n->in[i].value);
    for (int i = 0; i < n->n_out; i++) {
        n->out[i] = value_copy(old->out[i]);
        n->out[i]->node = n;
    }
    PUSH(&b->body->node, n);
    return n;
}

void body_end(struct body *now, const struct body *old)
{
    for (int i = 0; i < old->next.n; i++) PUSH(&now->next, copied(old->next.item[i]));
    for (int i = 0; i < old->gradient.n; i++) {
        const struct yield_gradient *y = &old->gradient.item[i];
        PUSH(&now->gradient, ((struct yield_gradient){copied(y->weight), copied(y->value)}));
    }
}

void region_end(struct graph *g, struct region *now, const struct region *old)
{
    (void)g;
    for (int i = 0; i < now->carry.n; i++)
        now->carry.item[i].last = value_copy(old->carry.item[i].last);
}

void region_copy(struct graph *g, const struct region *old)
{
    struct region *r = region_begin(g, old);
    for (int i = 0; i < old->body.n; i++) {
        struct body *body = body_begin(r, old->body.item[i]);
        struct build b = {.graph = g, .region = r, .body = body};
        for (int k = 0; k < old->body.item[i]->node.n; k++)
            node_copy(&b, old->body.item[i]->node.item[k]);
        body_end(body, old->body.item[i]);
    }
    region_end(g, r, old);
}

void kernels_copy(struct graph *g, const struct graph *old)
{
    for (int i = 0; i < old->kernel.n; i++) PUSH(&g->kernel, old->kernel.item[i]);
}
