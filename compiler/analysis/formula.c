/* Explains a number of bytes with the names of the plan: "tokens 16,384 x vocab 151,936 x 4 B". A
 * name may not be guessed from a number, because two widths can be equal. So the name of a
 * dimension is traced through the ops to the declaration of a weight in the architecture, and is
 * used only if its value there is the dimension. A dimension that cannot be traced stays a
 * number. */
#include "analysis/ledger.h"
#include "passes/workspace.h"

#include <string.h>

/* ── whose bytes a buffer holds ──────────────────────────────────────────────── */
struct owner {
    const struct value *value;
    const struct node *node;
    const struct region *region;
    const struct carry *carry;
};

static bool find_owner(const struct graph *g, const char *name, struct owner *o)
{
    *o = (struct owner){0};
    for (int i = 0; i < g->input.n; i++)
        if (!strcmp(g->input.item[i]->name, name)) return o->value = g->input.item[i], true;
    for (int i = 0; i < g->region.n; i++) {
        const struct region *r = g->region.item[i];
        o->region = r;
        for (int k = 0; k < r->carry.n; k++)
            if (!strcmp(r->carry.item[k].value->name, name))
                return o->value = r->carry.item[k].value, o->carry = &r->carry.item[k], true;
        for (int k = 0; k < r->body.n; k++)
            for (int n = 0; n < r->body.item[k]->node.n; n++) {
                const struct node *node = r->body.item[k]->node.item[n];
                for (int v = 0; v < node->n_out; v++)
                    if (!strcmp(node->out[v]->name, name))
                        return o->value = node->out[v], o->node = node, true;
            }
    }
    return false;
}

static const struct carry *carry_of(const struct graph *g, const struct value *v)
{
    for (int i = 0; i < g->region.n; i++)
        for (int k = 0; k < g->region.item[i]->carry.n; k++)
            if (g->region.item[i]->carry.item[k].value == v ||
                g->region.item[i]->carry.item[k].last == v)
                return &g->region.item[i]->carry.item[k];
    return NULL;
}

/* ── the architecture's text ─────────────────────────────────────────────────── */
static const char *base_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

const char *formula_line(const struct plan *p, const char *file, int line)
{
    const int from[] = {p->architecture_body ? p->architecture_body->at.file : 0, p->model_at.file,
                        p->cluster.at.file};
    for (size_t i = 0; i < COUNT_OF(from) && file && line > 0; i++) {
        if (!from[i] || strcmp(base_name(source_name(from[i])), base_name(file))) continue;
        size_t n;
        const char *s = source_bytes(from[i], &n), *end = s + n;
        for (int k = 1; k < line && s < end; k++) {
            s = memchr(s, '\n', (size_t)(end - s));
            s = s ? s + 1 : end;
        }
        const char *stop = s < end ? memchr(s, '\n', (size_t)(end - s)) : NULL;
        stop = stop ? stop : end;
        while (s < stop && (*s == ' ' || *s == '\t')) s++;
        while (stop > s && (stop[-1] == ' ' || stop[-1] == '\r')) stop--;
        return text_format("%.*s", (int)(stop - s), s);
    }
    return NULL;
}

static bool hyper_of(const struct plan *p, const char *name, size_t n, int64_t *x)
{
    for (int i = 0; i < p->n_hyper; i++)
        if (strlen(p->hyper[i].name) == n && !memcmp(p->hyper[i].name, name, n) &&
            constant_is_whole(&p->hyper[i].value))
            return *x = p->hyper[i].value.top, true;
    return false;
}

/* The value of a product of names and numbers ("2 * expert_width"), 0 when it is anything else. */
static int64_t product_of(const struct plan *p, const char *text)
{
    int64_t all = 1;
    for (const char *s = text;; s++) {
        s += strspn(s, " ");
        size_t n = strspn(s, "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_");
        int64_t x = 0;
        if (!n) return 0;
        if (!hyper_of(p, s, n, &x))
            for (size_t i = 0; i < n; i++) {
                if (s[i] < '0' || s[i] > '9' || x > INT32_MAX) return 0;
                x = 10 * x + s[i] - '0';
            }
        if (!x || all > INT64_MAX / x) return 0;
        all *= x;
        s += n, s += strspn(s, " ");
        if (!*s) return all;
        if (*s != '*') return 0;
    }
}

/* Dimension `axis` of a weight as its declaration writes it, when that is the number. */
static const char *declared(const struct plan *p, const struct weight *w, int axis)
{
    const char *line = formula_line(p, w->file, w->line), *s = line ? strchr(line, '[') : NULL;
    for (int k = 0; s && k < axis; k++) s = strpbrk(s + 1, ",]");
    if (!s || *s == ']') return NULL;
    size_t n = strcspn(++s, ",]");
    const char *equals = memchr(s, '=', n);
    if (equals) n -= (size_t)(equals + 1 - s), s = equals + 1;
    while (n && *s == ' ') s++, n--;
    bool both = w->beside && axis == w->value->shape.rank - 2; /* the rows of two weights */
    const char *text = text_format("%s%.*s", both ? "2 * " : "", (int)n, s);
    return product_of(p, text) == w->value->shape.dim[axis] ? text : NULL;
}

/* ── names of dimensions ─────────────────────────────────────────────────────── */
struct dimension {
    const struct value *value;
    int axis;
};

struct words {
    const struct plan *plan;
    const struct graph *graph;
    /* traced before, without a name; many paths of a graph lead to the same dimension */
    VECTOR(struct dimension) nameless;
};

/* A hyper-parameter with that value, when there is only one; the plan's batch. */
static const char *by_value(const struct words *w, int64_t x)
{
    const char *found = NULL;
    if (x == w->graph->facts.tokens) return "tokens";
    for (int i = 0; i < w->plan->n_hyper; i++) {
        const struct hyper *h = &w->plan->hyper[i];
        if (!constant_is_whole(&h->value) || h->value.top != x || x < 2) continue;
        if (found) return NULL;
        found = h->name;
    }
    return found;
}

static const char *name_of(struct words *w, const struct value *v, int axis, int depth);

static const char *choices(struct words *w, const struct value *rows, int64_t k, int depth)
{
    const char *a = name_of(w, rows, 0, depth), *b = by_value(w, k);
    return a ? text_format("%s * %s", a, b ? b : text_count(k)) : NULL;
}

/* The factor of a product of names that has this value; of several equal ones the wanted-th. */
static const char *factor_of(const struct words *w, const char *product, int64_t x, bool last)
{
    const char *found = NULL;
    for (const char *s = product; *s; s += strspn(s, " *")) {
        size_t n = strcspn(s, " *");
        int64_t value;
        if (hyper_of(w->plan, s, n, &value) && value == x && (last || !found))
            found = text_format("%.*s", (int)n, s);
        s += n;
    }
    return found;
}

static const char *name_of_view(struct words *w, const struct node *n, int axis, int depth)
{
    const struct value *in = n->in[0].value, *out = n->out[0];
    if (axis < in->shape.rank && in->shape.dim[axis] == out->shape.dim[axis])
        return name_of(w, in, axis, depth);
    if (in->shape.rank < out->shape.rank) { /* split: heads_of */
        const char *whole = name_of(w, in, in->shape.rank - 1, depth);
        const char *part =
            whole ? factor_of(w, whole, out->shape.dim[axis], axis == out->shape.rank - 1) : NULL;
        return part ? part : by_value(w, out->shape.dim[axis]);
    }
    struct text t = {0}; /* joined: merge_heads */
    int64_t all = 1;
    for (int i = axis; i < in->shape.rank && all < out->shape.dim[axis]; i++) {
        const char *one = name_of(w, in, i, depth);
        if (!one) return NULL;
        text_add(&t, "%s%s", i > axis ? " * " : "", one);
        all *= in->shape.dim[i];
    }
    return all == out->shape.dim[axis] ? t.bytes : by_value(w, out->shape.dim[axis]);
}

/* An operand with the same extent at the same axis, counted from either end. */
static const char *inherited(struct words *w, const struct node *n, const struct value *v, int axis,
                             int depth)
{
    int64_t x = v->shape.dim[axis];
    for (int from_end = 0; from_end < 2; from_end++)
        for (int i = 0; i < n->n_in; i++) {
            const struct value *in = n->in[i].value;
            int at = !in ? -1 : from_end ? axis - v->shape.rank + in->shape.rank : axis;
            if (at < 0 || at >= in->shape.rank || in->shape.dim[at] != x) continue;
            const char *name = name_of(w, in, at, depth);
            if (name) return name;
        }
    return by_value(w, x);
}

/* An axis of a core op's result: the operand's that it is, or the product that it stands for. */
static const char *name_of_core(struct words *w, const struct node *n, const struct value *v,
                                int axis, int depth)
{
    const struct value *of = NULL, *a = n->n_in ? n->in[0].value : NULL;
    int at = axis, out = 0;
    while (n->out[out] != v) out++;
    switch ((enum core_op)n->op) {
    case CORE_OP_matmul:
    case CORE_OP_matmul_add:
        of = n->in[axis].value;
        at = attr_get(n, axis ? "tb" : "ta") ? 1 - axis : axis;
        break;
    case CORE_OP_expert_matmul:
        of = n->in[axis].value;
        at = axis == 0 ? 0 : attr_or(n, "ta", 0) ? 2 : 1;
        break;
    case CORE_OP_expert_matmul_grad:
        if (axis) of = n->in[axis - 1].value, at = 1;
        break;
    case CORE_OP_embedding: of = n->in[axis].value; break;
    case CORE_OP_embedding_grad:
        if (axis) of = n->in[1].value;
        break;
    case CORE_OP_attention: of = a; break;
    case CORE_OP_attention_grad:
        if (out == 3 && attr_or(n, "room", 0) && axis == 1) return NULL;
        if (out == 3 && !attr_or(n, "room", 0) && axis < 2) return axis == 1 ? "sequence" : NULL;
        of = out < 3 ? n->in[out].value : a;
        break;
    case CORE_OP_rope_cos:
    case CORE_OP_rope_sin:
        if (axis == 0) return "sequence";
        break;
    case CORE_OP_route_plan: return out == 0 ? choices(w, a, a->shape.dim[1], depth) : NULL;
    case CORE_OP_dispatch:
        if (axis == 0) return choices(w, a, v->shape.dim[0] / a->shape.dim[0], depth);
        of = a;
        break;
    case CORE_OP_to_rows:
        if (axis == 0) return choices(w, a, a->shape.dim[1], depth);
        break;
    case CORE_OP_collect:
        if (axis) of = a;
        break;
    case CORE_OP_positions:
    case CORE_OP_from_rows:
    case CORE_OP_sum_middle:
    case CORE_OP_sum_squares: return inherited(w, n, v, axis, depth);
    }
    const char *name = of ? name_of(w, of, at, depth) : NULL;
    return name ? name : by_value(w, v->shape.dim[axis]);
}

/* The name of a dimension that is not a weight's, by the op that makes it. */
static const char *traced(struct words *w, const struct value *v, int axis, int depth)
{
    const struct node *n = v->node;
    if (!n) {
        const struct carry *c = carry_of(w->graph, v);
        return c ? name_of(w, c->first, axis, depth + 1) : by_value(w, v->shape.dim[axis]);
    }
    switch (op_rows[n->op].class) {
    case CLASS_CORE: return name_of_core(w, n, v, axis, depth + 1);
    case CLASS_VIEW: return name_of_view(w, n, axis, depth + 1);
    case CLASS_MAP:
    case CLASS_INDEX:
    case CLASS_ROW:
    case CLASS_COLUMN:
    case CLASS_TOTAL:
    case CLASS_LEAF:
    case CLASS_EFFECT:
    case CLASS_LANE: break;
    }
    return inherited(w, n, v, axis, depth + 1);
}

static bool is_nameless(const struct words *w, const struct value *v, int axis)
{
    for (int i = 0; i < w->nameless.n; i++)
        if (w->nameless.item[i].value == v && w->nameless.item[i].axis == axis) return true;
    return false;
}

static const char *name_of(struct words *w, const struct value *v, int axis, int depth)
{
    if (axis >= v->shape.rank || v->shape.dim[axis] == 1 || depth > 200) return NULL;
    if (v->weight) return declared(w->plan, v->weight, axis);
    if (is_nameless(w, v, axis)) return NULL;
    const char *name = traced(w, v, axis, depth);
    if (!name) PUSH(&w->nameless, ((struct dimension){v, axis}));
    return name;
}

/* ── formulas ────────────────────────────────────────────────────────────────── */
static const char *type_text(enum element type)
{
    static const char *const text[] = {
        [F32] = "fp32 4 B", [BF16] = "bf16 2 B", [F64] = "fp64 8 B", [I32] = "int32 4 B"};
    return text[type];
}

/* "heads x head_dim" of "heads * head_dim", in parentheses when it is a product. */
static const char *shown(const char *name)
{
    struct text t = {0};
    bool product = strchr(name, '*') != NULL;
    text_add(&t, "%s", product ? "(" : "");
    for (const char *s = name; *s; s++) text_add(&t, "%c", *s == '*' ? 'x' : *s);
    text_add(&t, "%s", product ? ")" : "");
    return t.bytes;
}

static const char *entries_text(const struct buffer *b, const struct owner *o)
{
    const struct region *r = o->region;
    if (b->entries == 1 && !(r && r->direction != ONCE && b->index == INDEX_LAYER)) return "";
    if (b->index != INDEX_LAYER) return text_format(" x %lld in turn", (long long)b->entries);
    if (b->entries == r->count) return text_format(" x %s %s", r->loop, text_count(b->entries));
    if (b->entries == r->count + 1)
        return text_format(" x (%s + 1) %s", r->loop, text_count(b->entries));
    return text_format(" x %s of %s %s", text_count(b->entries), text_count(r->count), r->loop);
}

static const char *formula_of_value(const struct plan *p, const struct graph *g,
                                    const struct buffer *b, const struct owner *o)
{
    struct words w = {.plan = p, .graph = g};
    struct text t = {0};
    for (int i = 0; i < o->value->shape.rank; i++) {
        int64_t x = o->value->shape.dim[i];
        if (x == 1 && (t.length || i + 1 < o->value->shape.rank)) continue;
        const char *name = name_of(&w, o->value, i, 0);
        text_add(&t, "%s%s%s%s", t.length ? " x " : "", name ? shown(name) : "", name ? " " : "",
                 text_count(x));
    }
    text_add(&t, "%s%s%s", t.length ? " x " : "", type_text(o->value->type), entries_text(b, o));
    return t.bytes;
}

static const char *formula_of_slot(const struct graph *g, const struct buffer *b, int step)
{
    bool gathered = b->kind == BUFFER_GATHERED;
    const struct unit *u = slot_unit(g, b);
    const struct facts *f = &g->facts;
    if (gathered && f->reshard != RESHARD_FORWARD && u->loop[0])
        return text_format("(reshard %s) %s slots x %s elements of unit %s x %s",
                           reshard_names[f->reshard], text_count(b->entries),
                           text_count(u->elements), u->name, type_text(f->compute));
    int64_t wished = gathered ? f->prefetch + 1 : f->reduce_slots;
    const char *many = b->entries == 1 ? "1 slot"
                       : b->entries == wished
                           ? gathered
                                 ? text_format("(prefetch + 1) %lld slots", (long long)b->entries)
                                 : text_format("reduce_slots %lld", (long long)b->entries)
                           : text_format("%lld slots", (long long)b->entries);
    int64_t held = buffer_entries_at(b, step);
    if (held < b->entries) /* one of a loop's is not filled yet */
        many = text_format("%s%lld slot%s", b->entries == wished ? "prefetch " : "",
                           (long long)held, held == 1 ? "" : "s");
    return text_format("%s x %s elements of unit %s x %s", many, text_count(u->elements), u->name,
                       type_text(gathered ? f->compute : F32));
}

/* Of master weights, gradients and moments, and of the weights in the compute type. */
static const char *formula_of_state(const struct graph *g, const struct buffer *b)
{
    const bool shards =
        b->kind == BUFFER_WEIGHTS || (b->kind == BUFFER_GRADIENT && gradients_whole(&g->facts));
    const enum element type = b->kind == BUFFER_WEIGHTS ? g->facts.compute : F32;
    int64_t parameters = cost_parameters(g), dp = shards ? 1 : g->facts.parts,
            cut = g->facts.fsdp * dp, size = element_bytes(type),
            whole = (size * parameters + cut - 1) / cut;
    return text_format("%s x %s parameters / fsdp %lld%s + %s B of padding", type_text(type),
                       text_count(parameters), (long long)g->facts.fsdp,
                       dp > 1 ? text_format(" / dp %lld", (long long)dp) : "",
                       text_count(b->bytes - whole));
}

/* On their way to the sum over the replicas. */
static const char *formula_of_shards(const struct graph *g, const struct buffer *b)
{
    const char *many =
        b->entries == 1 ? "1 slot" : text_format("reduce_slots %lld", (long long)b->entries);
    return text_format("%s x fp32 4 B x (unit %s / fsdp) %s elements", many, slot_unit(g, b)->name,
                       text_count(b->bytes / 4));
}

/* One shard at a time passes through it. */
static const char *formula_of_stage(const struct graph *g, const struct buffer *b)
{
    const char *name = "the largest unit";
    for (int i = 0; i < g->unit.n; i++)
        if (g->unit.item[i]->shard_elements * 4 == b->bytes)
            name = text_format("unit %s", g->unit.item[i]->name);
    return text_format("fp32 4 B x (%s / fsdp) %s elements", name, text_count(b->bytes / 4));
}

static const char *formula_of_workspace(const struct graph *g)
{
    int64_t bytes;
    const struct kernel *k = workspace_kernel(g, &bytes);
    return text_format("%s B that %s works in beside its operands, the most of all kernels",
                       text_count(bytes), k ? k->name : "none");
}

const char *formula_of(const struct plan *p, const struct graph *g, const struct buffer *b,
                       int step)
{
    struct owner o;
    switch (b->kind) {
    case BUFFER_MASTER:
    case BUFFER_GRADIENT:
    case BUFFER_MOMENT1:
    case BUFFER_MOMENT2:
    case BUFFER_WEIGHTS: return formula_of_state(g, b);
    case BUFFER_GRADIENT_SHARDS: return formula_of_shards(g, b);
    case BUFFER_GATHERED:
    case BUFFER_GRADIENT_SLOTS: return formula_of_slot(g, b, step);
    case BUFFER_REDUCE_STAGING: return formula_of_stage(g, b);
    case BUFFER_WORKSPACE: return formula_of_workspace(g);
    case BUFFER_STAGING: return "fixed: files pass through it";
    case BUFFER_SCALARS: return "fixed: learning rate, bias corrections, norm, clipping";
    case BUFFER_METRICS:
        return text_format("%s%sfp64 8 B", b->bytes == 8 ? "" : text_count(b->bytes / 8),
                           b->bytes == 8 ? "" : " x ");
    case BUFFER_CARRIED:
    case BUFFER_SAVED:
    case BUFFER_BATCH:
    case BUFFER_TABLES:
    case BUFFER_WORKING:
    case BUFFER_ALIAS: break;
    }
    return find_owner(g, b->name, &o) ? formula_of_value(p, g, b, &o)
                                      : text_format("%s B", text_count(b->bytes));
}

/* ── lines ───────────────────────────────────────────────────────────────────── */
void formula_place_of(struct span at, const char **file, int *line)
{
    int column;
    *file = NULL, *line = 0;
    if (!at.file) return;
    *file = source_name(at.file);
    source_place(at.file, at.from, line, &column);
}

/* Where the plan decides about a kind of buffer. */
void formula_place_of_kind(const struct plan *p, enum buffer_kind kind, const char **file,
                           int *line)
{
    struct span at = {0};
    switch (kind) {
    case BUFFER_GATHERED:
    case BUFFER_GRADIENT_SLOTS:
    case BUFFER_GRADIENT_SHARDS:
    case BUFFER_WEIGHTS:
    case BUFFER_REDUCE_STAGING: at = p->at.mesh; break;
    case BUFFER_SAVED: at = p->at.checkpoint.file ? p->at.checkpoint : p->at.batch; break;
    case BUFFER_CARRIED:
    case BUFFER_BATCH:
    case BUFFER_TABLES:
    case BUFFER_WORKING: at = p->at.batch; break;
    case BUFFER_MASTER:
    case BUFFER_GRADIENT:
    case BUFFER_MOMENT1:
    case BUFFER_MOMENT2:
    case BUFFER_SCALARS:
    case BUFFER_STAGING:
    case BUFFER_WORKSPACE:
    case BUFFER_METRICS:
    case BUFFER_ALIAS: break;
    }
    formula_place_of(at.file ? at : p->model_at, file, line);
}

/* The op that makes a value, or of a carry what it begins with. */
static const struct node *maker_of(const struct owner *o)
{
    if (o->node) return o->node;
    if (!o->carry) return NULL;
    const struct node *n =
        o->region->body.n
            ? o->region->body.item[0]->next.item[o->carry - o->region->carry.item]->node
            : NULL;
    return n ? n : o->carry->first->node;
}

void formula_place(const struct plan *p, const struct graph *g, const struct buffer *b,
                   const char **file, int *line)
{
    struct owner o;
    bool value = b->kind == BUFFER_CARRIED || b->kind == BUFFER_SAVED || b->kind == BUFFER_TABLES ||
                 b->kind == BUFFER_WORKING;
    const struct node *n = value && find_owner(g, b->name, &o) ? maker_of(&o) : NULL;
    formula_place_of_kind(p, b->kind, file, line);
    if (n && n->file) *file = n->file, *line = n->line;
}
