/* The evaluator of architectures. An expression such as `x + experts * sum(p)` mixes what is known
 * now (numbers, on/off, lists) with values of the graph. What is known now is computed exactly, the
 * rest becomes nodes. Names are looked up innermost first: what the architecture assigned, `i` in a
 * repeat, hyper-parameters, tokens, targets and positions, the plan's batch and mesh, constants of
 * the file. */
#define _XOPEN_SOURCE 700
#include "passes/lower.h"
#include "check/keys.h"

#include <stdlib.h>

struct meaning lower_nothing(void) { return (struct meaning){.kind = MEANS_NOTHING}; }
struct meaning lower_value(struct value *v)
{
    return v ? (struct meaning){.kind = MEANS_VALUE, .value = v} : lower_nothing();
}
struct meaning lower_constant(struct constant c)
{
    return (struct meaning){.kind = MEANS_CONSTANT, .constant = c};
}

const char *lower_kind(const struct meaning *m)
{
    switch (m->kind) {
    case MEANS_NOTHING: return "nothing";
    case MEANS_VALUE: return text_format("a value %s", shape_text(m->value->shape));
    case MEANS_ROUTING: return "a routing";
    case MEANS_LATER: return "a value";
    case MEANS_CONSTANT: break;
    }
    const char *shown = constant_text(&m->constant);
    switch (m->constant.kind) {
    case CONST_NUMBER: return text_format("the number %s", shown);
    case CONST_TRUTH: return text_format("'%s'", m->constant.truth ? "on" : "off");
    case CONST_STRING: return text_format("the text \"%s\"", m->constant.text);
    case CONST_WORD: return text_format("the word '%s'", m->constant.text);
    case CONST_LIST: return text_format("the list %s", shown);
    case CONST_RANGE: return text_format("the range %s", shown);
    }
    bug("constant kind %d", (int)m->constant.kind);
}

/* Plans of the library are named from the library on, so that a dump is the same wherever it is
 * installed and however a plan came to use it; others as the user wrote them. */
static const char *place_name(int file)
{
    static const char *known[256]; /* by file number; not the arena's, whose marks it outlives */
    if (file < (int)COUNT_OF(known) && known[file]) return known[file];
    const char *name = source_name(file), *library = plan_library();
    char *real = realpath(name, NULL);
    size_t n = library ? strlen(library) : 0;
    bool ours = n && real && !strncmp(real, library, n) && real[n] == '/';
    const char *shown = intern(ours ? real + n + 1 : name);
    free(real);
    if (file < (int)COUNT_OF(known)) known[file] = shown;
    return shown;
}

void lower_place(struct lower *l, struct span at)
{
    int column;
    l->b.file = place_name(at.file);
    source_place(at.file, at.from, &l->b.line, &column);
}

/* ── names ───────────────────────────────────────────────────────────────────── */
struct binding *lower_find(struct lower *l, const char *name)
{
    for (int i = l->name.n - 1; i >= 0; i--)
        if (!strcmp(l->name.item[i].name, name)) return &l->name.item[i];
    return NULL;
}

const struct hyper *lower_hyper(const struct lower *l, const char *name)
{
    for (int i = 0; i < l->plan->n_hyper; i++)
        if (!strcmp(l->plan->hyper[i].name, name)) return &l->plan->hyper[i];
    return NULL;
}

/* Its declaration with a default, or NULL. */
static const struct ast *hyper_entry(const struct lower *l, const char *name)
{
    const struct ast *body = l->plan->architecture_body;
    for (int i = 0; i < body->n; i++) {
        const struct ast *block = body->kid[i];
        if (block->kind != AST_BLOCK || strcmp(block->kid[0]->kid[0]->text, "hyper")) continue;
        for (int k = 0; k < block->kid[1]->n; k++) {
            const struct ast *entry = block->kid[1]->kid[k];
            if (entry->kind == AST_ENTRY && !strcmp(entry->kid[0]->text, name)) return entry;
        }
    }
    return NULL;
}

static bool path_number(const struct lower *l, const char *path, int64_t *x)
{
    const struct plan *p = l->plan;
    const struct {
        const char *path;
        int64_t x;
    } row[] = {
        {"batch.sequence", p->sequence}, {"batch.local", p->local}, {"batch.global", p->global},
        {"mesh.fsdp", p->fsdp},          {"mesh.dp", p->dp},
    };
    for (size_t i = 0; i < COUNT_OF(row); i++)
        if (!strcmp(row[i].path, path)) {
            *x = row[i].x;
            return true;
        }
    return false;
}

/* An entry at file level of the architecture's file. */
static bool file_constant(struct lower *l, const struct ast *name, struct meaning *out)
{
    if (!l->file) l->file = parse_source(l->plan->architecture_body->at.file);
    for (int i = 0; i < l->file->n; i++) {
        const struct ast *entry = l->file->kid[i];
        if (entry->kind != AST_ENTRY || strcmp(entry->kid[0]->text, name->text)) continue;
        if (l->file_depth > 20) {
            complain(name->at, "the constant '%s' depends on itself", name->text);
            *out = lower_nothing();
            return true;
        }
        l->file_depth++;
        *out = lower_expression(l, entry->kid[1]);
        l->file_depth--;
        return true;
    }
    return false;
}

static void unknown_name(struct lower *l, const struct ast *name)
{
    VECTOR(const char *) known = {0};
    for (int i = 0; i < l->name.n; i++) PUSH(&known, l->name.item[i].name);
    for (int i = 0; i < l->plan->n_hyper; i++) PUSH(&known, l->plan->hyper[i].name);
    static const char *const fixed[] = {"tokens",         "targets",     "positions",
                                        "batch.sequence", "batch.local", "batch.global",
                                        "mesh.fsdp",      "mesh.dp"};
    for (size_t i = 0; i < COUNT_OF(fixed); i++) PUSH(&known, fixed[i]);
    struct diagnostic *d = complain(name->at, "nothing here is called '%s'", name->text);
    const char *near = nearest_name(name->text, known.item, known.n);
    static const struct {
        const char *word, *means;
    } foreign[] = {{"inputs", "tokens"},
                   {"input_ids", "tokens"},
                   {"idx", "tokens"},
                   {"labels", "targets"},
                   {"position_ids", "positions"}};
    for (size_t i = 0; !near && i < COUNT_OF(foreign); i++)
        if (!strcmp(foreign[i].word, name->text)) near = foreign[i].means;
    if (!near) near = foreign_hyper(name->text, known.item, known.n);
    if (near) PUSH(&l->meant, near);
    const char *dot = strrchr(name->text, '.');
    if (near)
        add_help(d, "did you mean '%s'?", near);
    else if (dot && !strcmp(dot, ".T"))
        add_help(d, "linear(x, W) multiplies by W transposed");
    else if (!strcmp(name->text, "i"))
        add_help(d, "i is the number of the layer, inside a repeat");
    for (int i = 0; i < l->gone.n; i++)
        if (!strcmp(l->gone.item[i].name, name->text)) {
            add_note(d, l->gone.item[i].at,
                     "this one was first assigned inside a repeat and ended with it");
            break;
        }
}

/* A layer gathers its own weights and no others. True after a diagnostic. */
static bool from_outside(struct lower *l, const struct ast *name, const struct meaning *m)
{
    const struct declared_weight *w =
        l->in_repeat && m->kind == MEANS_VALUE ? lower_declared(l, m->value) : NULL;
    if (!w || w->region->direction != ONCE) return false;
    struct diagnostic *d = complain(
        name->at,
        "'%s' is a weight from outside the repeat, and a layer has weights of its own only",
        name->text);
    add_note(d, w->at, "declared here");
    add_help(d, "declare one inside the repeat, or use it before or after the repeat");
    return true;
}

static struct meaning name_means(struct lower *l, const struct ast *x)
{
    const char *name = x->text;
    struct binding *found = lower_find(l, name);
    if (found) return from_outside(l, x, &found->means) ? lower_nothing() : found->means;
    if (l->in_repeat && !strcmp(name, "i")) {
        struct meaning m = lower_constant(constant_whole(l->i));
        m.by_layer = true;
        return m;
    }
    const struct hyper *hyper = lower_hyper(l, name);
    if (hyper) return lower_constant(hyper->value);
    if (!strcmp(name, "on") || !strcmp(name, "off"))
        return lower_constant(constant_truth(!strcmp(name, "on")));
    for (int i = 0; i < l->g->input.n; i++)
        if (!strcmp(l->g->input.item[i]->name, name)) return lower_value(l->g->input.item[i]);
    if (!strcmp(name, "positions")) lower_place(l, x->at);
    if (!strcmp(name, "positions"))
        return l->deciding ? (struct meaning){.kind = MEANS_LATER}
                           : lower_value(layer_positions(&l->b));
    int64_t whole;
    if (path_number(l, name, &whole)) return lower_constant(constant_whole(whole));
    struct meaning m;
    if (file_constant(l, x, &m)) return m;
    unknown_name(l, x);
    return lower_nothing();
}

/* ── where a number comes from ───────────────────────────────────────────────── */
static void trace(struct lower *l, struct diagnostic *d, const struct ast *x, int depth)
{
    if (depth > 6) return;
    if (x->kind == AST_NAME) {
        const struct hyper *h = lower_hyper(l, x->text);
        if (!h) return;
        const struct ast *entry = hyper_entry(l, x->text);
        add_note(d, h->at, "%s is %s", h->name, constant_text(&h->value));
        bool defaulted = entry && h->at.file == entry->at.file && h->at.from >= entry->at.from &&
                         h->at.to <= entry->at.to;
        if (defaulted) trace(l, d, entry->kid[1], depth + 1);
        return;
    }
    if (x->kind == AST_PATH) {
        int64_t whole;
        if (path_number(l, x->text, &whole))
            add_note(d, l->plan->at.batch, "%s is %lld", x->text, (long long)whole);
        return;
    }
    for (int i = 0; i < x->n; i++) trace(l, d, x->kid[i], depth + 1);
}

void lower_trace(struct lower *l, struct diagnostic *d, const struct ast *x) { trace(l, d, x, 0); }

/* ── numbers that must be known now ──────────────────────────────────────────── */
static bool plain_number(struct lower *l, const struct ast *x, const struct meaning *m,
                         const char *what)
{
    if (m->kind == MEANS_NOTHING) return false;
    if (m->kind != MEANS_CONSTANT || m->constant.kind != CONST_NUMBER) {
        complain(x->at, "%s must be a number, not %s", what, lower_kind(m));
        return false;
    }
    if (m->constant.unit != UNIT_NONE) {
        complain(x->at, "%s must be a plain number, %s has a unit", what,
                 constant_text(&m->constant));
        return false;
    }
    if (m->by_layer && !l->deciding) {
        struct diagnostic *d =
            complain(x->at, "%s differs from layer to layer, and the layers share one body", what);
        add_help(d, "let i decide in a condition: `when (i == 0) { … }` or `i == 0 ? a : b`");
        return false;
    }
    return true;
}

bool lower_number(struct lower *l, const struct ast *x, const char *what, double *number)
{
    struct meaning m = lower_expression(l, x);
    if (!plain_number(l, x, &m, what)) return false;
    *number = m.constant.number;
    return true;
}

bool lower_dimension(struct lower *l, const struct ast *x, const char *what, int64_t least,
                     int64_t *whole)
{
    struct meaning m = lower_expression(l, x);
    if (!plain_number(l, x, &m, what)) return false;
    if (!constant_is_whole(&m.constant)) {
        struct diagnostic *d = complain(x->at, "%s must be a whole number, this is %s", what,
                                        constant_text(&m.constant));
        lower_trace(l, d, x);
        return false;
    }
    if (m.constant.top < least) {
        struct diagnostic *d = complain(x->at, "%s must be at least %lld, this is %lld", what,
                                        (long long)least, (long long)m.constant.top);
        lower_trace(l, d, x);
        return false;
    }
    *whole = m.constant.top;
    return true;
}

bool lower_condition(struct lower *l, const struct ast *x, bool *ok)
{
    struct meaning m = lower_expression(l, x);
    *ok = false;
    if (m.kind == MEANS_NOTHING) return false;
    if (m.kind != MEANS_CONSTANT || m.constant.kind != CONST_TRUTH) {
        struct diagnostic *d =
            complain(x->at, "a condition decides when the plan is compiled: on or off, not %s",
                     lower_kind(&m));
        if (m.kind == MEANS_VALUE || m.kind == MEANS_LATER)
            add_help(d, "values are known only when the trainer runs");
        return false;
    }
    *ok = true;
    if (m.by_layer) {
        PUSH(&l->outcome, (char)(m.constant.truth ? '1' : '0'));
        const char *named = x->kind == AST_NAME ? x->text
                            : x->kind == AST_UNARY && x->kid[0]->kind == AST_NAME
                                ? text_format("not_%s", x->kid[0]->text)
                                : NULL;
        if (m.constant.truth && named && !l->decision) l->decision = named;
    }
    return m.constant.truth;
}

/* ── operators ───────────────────────────────────────────────────────────────── */
static bool is_graph(const struct meaning *m)
{
    return m->kind == MEANS_VALUE || m->kind == MEANS_LATER;
}

static struct meaning unary(struct lower *l, const struct ast *x)
{
    struct meaning a = lower_expression(l, x->kid[0]);
    if (a.kind == MEANS_NOTHING || (a.kind == MEANS_LATER && !strcmp(x->text, "-"))) return a;
    if (a.kind == MEANS_CONSTANT) {
        struct meaning m = a;
        return constant_unary(x->text, &a.constant, x->at, &m.constant) ? m : lower_nothing();
    }
    if (a.kind == MEANS_VALUE && !strcmp(x->text, "-")) {
        const char *why = "";
        lower_place(l, x->at);
        struct value *v = layer_call1(&l->b, OP_neg, a.value, &why);
        if (!v) complain(x->at, "-: %s", why);
        return lower_value(v);
    }
    complain(x->at, "'%s' cannot be applied to %s", x->text, lower_kind(&a));
    return lower_nothing();
}

static void note_operand(struct lower *l, struct diagnostic *d, const struct ast *x,
                         const struct meaning *m)
{
    if (m->kind != MEANS_VALUE) return;
    const struct declared_weight *w = lower_declared(l, m->value);
    if (w)
        add_note(d, w->at, "this weight is %s", shape_text(m->value->shape));
    else
        add_note(d, x->at, "this is %s", shape_text(m->value->shape));
}

static struct meaning arithmetic(struct lower *l, const struct ast *x, const struct meaning *a,
                                 const struct meaning *b)
{
    static const struct {
        const char *text;
        enum op op;
    } row[] = {{"+", OP_add}, {"-", OP_sub}, {"*", OP_mul}, {"/", OP_div}};
    size_t k = 0;
    while (k < COUNT_OF(row) && strcmp(row[k].text, x->text)) k++;
    if (k == COUNT_OF(row)) {
        struct diagnostic *d =
            complain(x->at, "'%s' works on what is known when the plan is compiled, not on %s",
                     x->text, lower_kind(is_graph(a) ? a : b));
        add_help(d, "on values there are + - * / and the functions");
        return lower_nothing();
    }
    struct operand in[2];
    for (int i = 0; i < 2; i++) {
        const struct meaning *m = i ? b : a;
        if (!is_graph(m) &&
            !plain_number(l, x->kid[i], m, text_format("what '%s' joins with a value", x->text)))
            return lower_nothing();
        in[i] = m->kind == MEANS_VALUE ? by(m->value) : num(m->constant.number);
    }
    if (l->deciding) return (struct meaning){.kind = MEANS_LATER};
    for (int i = 0; i < 2; i++)
        if (in[i].value && in[i].value->type == I32) {
            complain(x->kid[i]->at,
                     "ids are not numbers to count with: '%s' works on values of the model",
                     x->text);
            return lower_nothing();
        }
    const char *why = "";
    lower_place(l, x->at);
    struct value *v = layer_arith(&l->b, row[k].op, in[0], in[1], &why);
    if (!v) {
        struct diagnostic *d = complain(x->at, "'%s' does not fit: %s", x->text, why);
        note_operand(l, d, x->kid[0], a);
        note_operand(l, d, x->kid[1], b);
    }
    return lower_value(v);
}

static struct meaning binary(struct lower *l, const struct ast *x)
{
    struct meaning a = lower_expression(l, x->kid[0]);
    bool logic = a.kind == MEANS_CONSTANT && a.constant.kind == CONST_TRUTH &&
                 (!strcmp(x->text, "and") || !strcmp(x->text, "or"));
    /* decided: the rest is not asked */
    if (logic && a.constant.truth == !strcmp(x->text, "or")) return a;
    struct meaning b = lower_expression(l, x->kid[1]);
    if (a.kind == MEANS_NOTHING || b.kind == MEANS_NOTHING) return lower_nothing();
    if (a.kind == MEANS_CONSTANT && b.kind == MEANS_CONSTANT) {
        struct meaning m = {.kind = MEANS_CONSTANT, .by_layer = a.by_layer || b.by_layer};
        return constant_binary(x->text, &a.constant, &b.constant, x->at, &m.constant)
                   ? m
                   : lower_nothing();
    }
    if (a.kind == MEANS_ROUTING || b.kind == MEANS_ROUTING) {
        complain(x->at, "'%s' cannot be applied to a routing", x->text);
        return lower_nothing();
    }
    return arithmetic(l, x, &a, &b);
}

static struct meaning list(struct lower *l, const struct ast *x)
{
    struct meaning m =
        lower_constant((struct constant){.kind = CONST_LIST, .n = x->n, .at = x->at});
    m.constant.item = TAKE_MANY(struct constant, x->n + 1);
    for (int i = 0; i < x->n; i++) {
        if (x->kid[i]->kind == AST_NAMED) {
            complain(x->kid[i]->at, "only the list of a weight's dimensions names one");
            return lower_nothing();
        }
        struct meaning item = lower_expression(l, x->kid[i]);
        if (item.kind == MEANS_NOTHING) return item;
        if (item.kind != MEANS_CONSTANT) {
            complain(x->kid[i]->at, "a list holds what is known when the plan is compiled, not %s",
                     lower_kind(&item));
            return lower_nothing();
        }
        m.constant.item[i] = item.constant;
        m.by_layer |= item.by_layer;
    }
    return m;
}

struct meaning lower_expression(struct lower *l, const struct ast *x)
{
    struct constant c;
    switch (x->kind) {
    case AST_NUMBER: return constant_from_number(x, &c) ? lower_constant(c) : lower_nothing();
    case AST_STRING:
        return lower_constant(
            (struct constant){.kind = CONST_STRING, .text = x->text, .at = x->at});
    case AST_NAME:
    case AST_PATH: return name_means(l, x);
    case AST_UNARY: return unary(l, x);
    case AST_BINARY:
    case AST_RANGE: return binary(l, x);
    case AST_CHOICE: {
        bool ok, taken = lower_condition(l, x->kid[0], &ok);
        return ok ? lower_expression(l, x->kid[taken ? 1 : 2]) : lower_nothing();
    }
    case AST_CALL: return lower_call(l, x);
    case AST_LIST: return list(l, x);
    case AST_ALTERNATIVES:
        complain(x->at, "alternatives belong in a plan; an architecture has one form");
        return lower_nothing();
    case AST_ITEMS:
    case AST_BLOCK:
    case AST_SAY:
    case AST_HEAD:
    case AST_ENTRY:
    case AST_NAMED: break;
    }
    bug("an expression of kind %d", (int)x->kind);
}

bool lower_mentions(const struct ast *x, const char *name)
{
    if (x->kind == AST_NAME || x->kind == AST_PATH) return !strcmp(x->text, name);
    for (int i = 0; i < x->n; i++)
        if (lower_mentions(x->kid[i], name)) return true;
    return false;
}
