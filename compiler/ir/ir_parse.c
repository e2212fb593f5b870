/* Reads the text that ir_print.c writes, so that a pass can be tested alone. It checks everything:
 * names must be known, types and shapes must be those that op_infer derives, counts must add up.
 * The first error is one message with its line. */
#include "base/escape.h"
#include "ir/ir.h"

#include <setjmp.h>
#include <stdlib.h>
#include <string.h>

struct known {
    const char *name;
    struct value *value;
};
struct reader {
    const char *at, *end;
    int line;
    struct graph *graph;
    struct known *table;
    size_t room, used;
    struct region *region;
    struct body *body;
    jmp_buf out;
    const char *why;
};

_Noreturn static void fail(struct reader *r, const char *format, ...) PRINTF_LIKE(2, 3);
static void fail(struct reader *r, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    r->why = text_format("line %d: %s", r->line, text_vformat(format, args));
    va_end(args);
    longjmp(r->out, 1);
}

/* ── the words of a line ─────────────────────────────────────────────────────── */
static void blanks(struct reader *r)
{
    while (r->at < r->end && *r->at == ' ') r->at++;
}

static bool see(struct reader *r, const char *text)
{
    blanks(r);
    size_t n = strlen(text);
    if ((size_t)(r->end - r->at) < n || memcmp(r->at, text, n)) return false;
    r->at += n;
    return true;
}

static void need(struct reader *r, const char *text)
{
    if (!see(r, text)) fail(r, "'%s' expected", text);
}

static bool name_char(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           c == '.';
}

static const char *name(struct reader *r)
{
    blanks(r);
    const char *from = r->at;
    while (r->at < r->end && name_char(*r->at)) r->at++;
    if (from == r->at) fail(r, "a name expected");
    return intern_bytes(from, (size_t)(r->at - from));
}

static const char *quoted(struct reader *r)
{
    need(r, "\"");
    const char *from = r->at;
    while (r->at < r->end && *r->at != '"' && *r->at != '\n') r->at++;
    if (r->at == r->end || *r->at != '"') fail(r, "a quote is not closed");
    return intern(unescape_word(from, (size_t)(r->at++ - from)));
}

static bool at_line_end(struct reader *r)
{
    blanks(r);
    return r->at == r->end || *r->at == '\n';
}

static void line_end(struct reader *r)
{
    if (!at_line_end(r)) fail(r, "nothing more expected on this line");
    if (r->at < r->end) r->at++;
    r->line++;
}

/* A number's text, whole or real. */
static const char *number_text(struct reader *r, bool *whole)
{
    blanks(r);
    const char *from = r->at;
    while (r->at < r->end && (name_char(*r->at) || *r->at == '-' || *r->at == '+')) {
        if (*r->at == '.' && r->at + 1 < r->end && r->at[1] == '.') break; /* 0..4 */
        r->at++;
    }
    if (from == r->at) fail(r, "a number expected");
    const char *text = text_format("%.*s", (int)(r->at - from), from);
    *whole = strspn(text, "-0123456789") == strlen(text);
    return text;
}

static int64_t whole(struct reader *r)
{
    bool is;
    const char *text = number_text(r, &is);
    if (!is) fail(r, "'%s' is not a whole number", text);
    return strtoll(text, NULL, 10);
}

static double real(struct reader *r)
{
    bool is;
    const char *text = number_text(r, &is);
    char *end;
    double x = strtod(text, &end);
    if (*end) fail(r, "'%s' is not a number", text);
    return x;
}

static int choice(struct reader *r, const char *const *names, int n, const char *word)
{
    for (int i = 0; i < n; i++)
        if (!strcmp(names[i], word)) return i;
    fail(r, "'%s' is not a word that fits here", word);
}

static void key(struct reader *r, const char *text)
{
    need(r, text);
    need(r, "=");
}

static int64_t key_whole(struct reader *r, const char *text) { return key(r, text), whole(r); }
static double key_real(struct reader *r, const char *text) { return key(r, text), real(r); }
static const char *key_word(struct reader *r, const char *text) { return key(r, text), quoted(r); }

static void place(struct reader *r, const char **file, int *line)
{
    *file = NULL, *line = 0;
    if (!see(r, "@")) return;
    const char *from = r->at;
    while (r->at < r->end && *r->at != '\n') r->at++;
    const char *colon = r->at;
    while (colon > from && *colon != ':') colon--;
    if (colon == from) fail(r, "a place is FILE:LINE");
    *file = intern(unescape_word(from, (size_t)(colon - from)));
    *line = (int)strtol(colon + 1, NULL, 10);
}

/* ── values ──────────────────────────────────────────────────────────────────── */
static struct known *slot(struct reader *r, const char *n)
{
    size_t at = ((size_t)(uintptr_t)n >> 4) * 0x9E3779B97F4A7C15u;
    for (at &= r->room - 1; r->table[at].name && r->table[at].name != n;
         at = (at + 1) & (r->room - 1)) {}
    return &r->table[at];
}

static void know(struct reader *r, struct value *v)
{
    if (r->used * 2 >= r->room) {
        struct known *old = r->table;
        size_t n = r->room;
        r->room = n ? n * 2 : 512;
        r->table = TAKE_MANY(struct known, r->room);
        for (size_t i = 0; i < n; i++)
            if (old[i].name) *slot(r, old[i].name) = old[i];
    }
    struct known *k = slot(r, v->name);
    if (k->name) fail(r, "%s is made a second time", v->name);
    *k = (struct known){v->name, v};
    r->used++;
}

static struct value *known(struct reader *r, const char *n)
{
    struct known *k = r->room ? slot(r, n) : NULL;
    if (!k || !k->name) fail(r, "%s is not known here", n);
    return k->value;
}

static struct value *typed(struct reader *r)
{
    const char *n = name(r);
    need(r, ":");
    enum element type = (enum element)choice(r, element_names, 4, name(r));
    struct shape s = {0};
    need(r, "[");
    while (!see(r, "]")) {
        if (s.rank == SHAPE_RANK) fail(r, "a shape of more than %d axes", SHAPE_RANK);
        if (s.rank) need(r, ",");
        s.dim[s.rank++] = whole(r);
        if (s.dim[s.rank - 1] < 1) fail(r, "an axis of %lld", (long long)s.dim[s.rank - 1]);
    }
    return value_new(r->graph, n, type, s);
}

/* ── lines ───────────────────────────────────────────────────────────────────── */
static void read_facts(struct reader *r)
{
    struct facts *f = &r->graph->facts;
    need(r, "facts");
    f->sequence = key_whole(r, "sequence"), f->local = key_whole(r, "local"),
    f->tokens = key_whole(r, "tokens");
    f->accumulation = key_whole(r, "accumulation"), f->fsdp = key_whole(r, "fsdp"),
    f->dp = key_whole(r, "dp");
    f->prefetch = key_whole(r, "prefetch"), f->reduce_slots = key_whole(r, "reduce_slots"),
    f->loss_chunks = key_whole(r, "loss_chunks");
    f->reshard = (enum reshard)choice(r, reshard_names, 3, key_word(r, "reshard"));
    f->checkpoint_mode =
        (enum checkpoint_mode)choice(r, checkpoint_names, 4, key_word(r, "checkpoint"));
    f->checkpoint_every = key_whole(r, "every"), f->checkpoint_layers = key_word(r, "layers"),
    f->checkpoint_save = key_word(r, "save");
    f->checkpoint_rest = (enum checkpoint_mode)choice(r, checkpoint_names, 4, key_word(r, "rest")),
    f->checkpoint_rest_save = key_word(r, "rest_save");
    f->compute = (enum element)choice(r, element_names, 4, key_word(r, "compute"));
    f->fuse = key_whole(r, "fuse") != 0, f->has_ignore = key_whole(r, "has_ignore") != 0,
    f->ignore = key_whole(r, "ignore");
    f->beta1 = key_real(r, "beta1"), f->beta2 = key_real(r, "beta2"), f->eps = key_real(r, "eps"),
    f->clip = key_real(r, "clip");
    if (!at_line_end(r))
        f->device = (enum device_kind)choice(r, device_names, 2, key_word(r, "device"));
    if (see(r, "attention="))
        f->attention_library = choice(r, (const char *const[]){"library"}, 1, quoted(r)) == 0;
    if (see(r, "experts="))
        f->experts_library = choice(r, (const char *const[]){"library"}, 1, quoted(r)) == 0;
    if (!at_line_end(r) && (f->shared_bytes = key_whole(r, "shared")) < 1)
        fail(r, "no shared memory");
    const int64_t positive[] = {f->sequence, f->local, f->tokens,       f->accumulation,
                                f->fsdp,     f->dp,    f->reduce_slots, f->loss_chunks};
    for (size_t i = 0; i < COUNT_OF(positive); i++)
        if (positive[i] < 1) fail(r, "a count below 1");
    line_end(r);
}

static void read_unit(struct reader *r)
{
    struct unit *u = TAKE(struct unit);
    u->name = name(r);
    u->loop = key_word(r, "loop"), u->count = key_whole(r, "count"),
    u->variant = key_word(r, "variant");
    if (!at_line_end(r))
        u->elements = key_whole(r, "elements"), u->shard_elements = key_whole(r, "shard_elements"),
        u->state_offset = key_whole(r, "state_offset");
    PUSH(&r->graph->unit, u);
    line_end(r);
}

static void read_weight(struct reader *r)
{
    struct weight *w = TAKE(struct weight);
    w->value = typed(r);
    w->value->weight = w;
    know(r, w->value);
    w->tensor = key_word(r, "tensor"), w->stack = key_whole(r, "stack"),
    w->unit = key_word(r, "unit");
    w->init = (enum weight_init)choice(r, weight_init_names, WEIGHT_INITS, key_word(r, "init"));
    w->std = key_real(r, "std"), w->offset = key_whole(r, "offset");
    place(r, &w->file, &w->line);
    PUSH(&r->graph->weight, w);
    line_end(r);
}

static struct attr read_attr(struct reader *r, const char *of)
{
    struct attr a = {.key = of};
    blanks(r);
    if (r->at < r->end && *r->at == '"') {
        a.kind = ATTR_WORD, a.word = quoted(r);
        return a;
    }
    bool is;
    const char *text = number_text(r, &is);
    if (is)
        a.kind = ATTR_WHOLE, a.whole = strtoll(text, NULL, 10);
    else
        a.kind = ATTR_REAL, a.real = strtod(text, NULL);
    return a;
}

/* What stands after the operands: attributes and annotations, then the place. */
static void read_annotations(struct reader *r, struct node *n)
{
    VECTOR(struct attr) attr = {0};
    while (!at_line_end(r)) {
        if (*r->at == '@') {
            place(r, &n->file, &n->line);
            break;
        }
        const char *word = name(r);
        if (see(r, "="))
            PUSH(&attr, read_attr(r, word));
        else if (!strcmp(word, "again"))
            n->again = true;
        else if (!strcmp(word, "kernel"))
            n->kernel = (int)whole(r);
        else if (!strcmp(word, "lane"))
            n->lane = (enum lane)choice(r, lane_names, 5, name(r));
        else if (!strcmp(word, "step"))
            n->step = (int)whole(r);
        else
            fail(r, "'%s' means nothing here", word);
    }
    n->attr = attr.item, n->n_attr = attr.n;
}

static void read_results(struct reader *r, struct node *n)
{
    struct value *out[4];
    const char *stop = r->at;
    while (stop < r->end && *stop != '\n') stop++;
    const char *parenthesis = memchr(r->at, '(', (size_t)(stop - r->at)),
               *colon = memchr(r->at, ':', (size_t)(stop - r->at));
    if (!parenthesis) fail(r, "an operation expected");
    if (colon && colon < parenthesis) {
        do {
            if (n->n_out == (int)COUNT_OF(out)) fail(r, "more than %d results", n->n_out);
            out[n->n_out++] = typed(r);
        } while (see(r, ","));
        need(r, "=");
    }
    n->out = TAKE_MANY(struct value *, n->n_out);
    for (int i = 0; i < n->n_out; i++) n->out[i] = out[i];
}

/* OP_COUNT: none. */
static int op_named(const char *name)
{
    int op = 0;
    while (op < OP_COUNT && strcmp(op_rows[op].name, name)) op++;
    return op;
}

static void read_node(struct reader *r)
{
    struct node *n = TAKE(struct node);
    read_results(r, n);
    const char *op_name = name(r);
    int op = op_named(op_name);
    if (op == OP_COUNT) fail(r, "there is no operation '%s'", op_name);
    n->op = (enum op)op;
    VECTOR(struct operand) in = {0};
    need(r, "(");
    while (!see(r, ")")) {
        if (in.n) need(r, ",");
        blanks(r);
        bool number = r->at < r->end && (*r->at == '-' || (*r->at >= '0' && *r->at <= '9'));
        struct operand o = number ? num(real(r)) : by(known(r, name(r)));
        PUSH(&in, o);
    }
    n->in = in.item, n->n_in = in.n;
    read_annotations(r, n);
    enum element type[4];
    struct shape shape[4];
    const char *why = NULL;
    if (!op_infer(n->op, n->in, n->n_in, n->attr, n->n_attr, type, shape, &why))
        fail(r, "%s: %s", op_name, why);
    if (op_rows[op].results != n->n_out)
        fail(r, "%s has %d results, not %d", op_name, op_rows[op].results, n->n_out);
    for (int i = 0; i < n->n_out; i++) {
        if (n->out[i]->type != type[i] || !shape_same(n->out[i]->shape, shape[i]))
            fail(r, "%s is %s%s by its operands", n->out[i]->name, element_names[type[i]],
                 shape_text(shape[i]));
        n->out[i]->node = n;
        know(r, n->out[i]);
    }
    PUSH(&r->body->node, n);
    line_end(r);
}

/* A word at the start of a line, followed by a blank: "next x = y" is not a value called next. */
static bool word(struct reader *r, const char *text)
{
    const char *back = r->at;
    if (see(r, text) && r->at < r->end && *r->at == ' ') return true;
    r->at = back;
    return false;
}

static void read_body(struct reader *r)
{
    r->body = body_new(r->region, quoted(r));
    r->body->keep = (enum checkpoint_mode)choice(r, checkpoint_names, 4, key_word(r, "keep"));
    if (r->body->keep == CHECKPOINT_SELECTIVE) r->body->save = key_word(r, "save");
    while (!at_line_end(r)) {
        struct stretch s = {.from = whole(r)};
        need(r, "..");
        s.to = whole(r);
        PUSH(&r->body->layers, s);
    }
    line_end(r);
    for (;;) {
        const char *back = r->at;
        blanks(r);
        if (r->at - back != 4) {
            r->at = back;
            break;
        }
        if (word(r, "gradient")) {
            struct yield_gradient y = {.weight = known(r, name(r))};
            need(r, "=");
            y.value = known(r, name(r));
            if (!y.weight->weight) fail(r, "%s is not a weight", y.weight->name);
            PUSH(&r->body->gradient, y);
            line_end(r);
        } else if (word(r, "next")) {
            if (r->body->next.n == r->region->carry.n) fail(r, "more next values than carries");
            if (known(r, name(r)) != r->region->carry.item[r->body->next.n].value)
                fail(r, "next values stand in the order of the carries");
            need(r, "=");
            PUSH(&r->body->next, known(r, name(r)));
            line_end(r);
        } else
            read_node(r);
    }
    if (r->body->next.n != r->region->carry.n)
        fail(r, "%d carries, but %d next values", r->region->carry.n, r->body->next.n);
}

static void read_region(struct reader *r)
{
    const char *n = name(r);
    need(r, "phase=");
    enum phase phase = (enum phase)choice(r, phase_names, 3, name(r));
    need(r, "run=");
    enum direction direction = (enum direction)choice(r, direction_names, 3, name(r));
    int64_t count = key_whole(r, "count");
    r->region = region_new(r->graph, n, phase, direction, count, key_word(r, "loop"));
    if (see(r, "mirror=")) r->region->mirror = quoted(r);
    if (see(r, "within=")) r->region->within = quoted(r);
    line_end(r);
    VECTOR(const char *) last = {0};
    while (see(r, "  carry") || see(r, "carry")) {
        struct carry c = {.value = typed(r)};
        know(r, c.value);
        key(r, "first");
        c.first = known(r, name(r));
        key(r, "last");
        const char *l = name(r);
        PUSH(&last, l);
        PUSH(&r->region->carry, c);
        line_end(r);
    }
    while (word(r, "body")) read_body(r);
    for (int i = 0; i < last.n; i++) {
        struct carry *c = &r->region->carry.item[i];
        c->last = value_new(r->graph, last.item[i], c->value->type, c->value->shape);
        know(r, c->last);
    }
    need(r, "end");
    line_end(r);
}

static void read_kernel_class(struct reader *r, struct kernel *k)
{
    const char *name = key_word(r, "class");
    int core = op_named(name);
    k->class = KERNEL_CORE, k->core = (enum op)core;
    if (core == OP_COUNT)
        k->class = (enum kernel_class)choice(r, kernel_class_names, KERNEL_CORE, name);
    else if (op_rows[core].class != CLASS_CORE)
        fail(r, "'%s' is not an op with a kernel of its own", name);
}

static void read_kernel(struct reader *r)
{
    struct kernel k = {.number = (int)whole(r)};
    k.name = key_word(r, "name");
    read_kernel_class(r, &k);
    k.rows = key_whole(r, "rows"), k.columns = key_whole(r, "columns");
    k.flops = key_real(r, "flops"), k.bytes = key_real(r, "bytes");
    PUSH(&r->graph->kernel, k);
    line_end(r);
}

static void read_buffer(struct reader *r)
{
    struct buffer *b = TAKE(struct buffer);
    b->name = name(r);
    b->kind = (enum buffer_kind)choice(r, buffer_kind_names, BUFFER_KINDS, key_word(r, "kind"));
    b->segment = (enum segment)choice(r, segment_names, SEGMENT_WIRE + 1, key_word(r, "segment"));
    b->offset = key_whole(r, "offset"), b->bytes = key_whole(r, "bytes"),
    b->entries = key_whole(r, "entries"), b->stride = key_whole(r, "stride");
    b->index =
        (enum buffer_index)choice(r, buffer_index_names, BUFFER_INDICES, key_word(r, "index"));
    b->live_from = (int)key_whole(r, "live_from"), b->live_to = (int)key_whole(r, "live_to");
    PUSH(&r->graph->buffer, b);
    line_end(r);
}

static void read_line(struct reader *r)
{
    if (word(r, "input")) {
        struct value *v = typed(r);
        know(r, v);
        PUSH(&r->graph->input, v);
        line_end(r);
    } else if (word(r, "unit"))
        read_unit(r);
    else if (word(r, "weight"))
        read_weight(r);
    else if (word(r, "region"))
        read_region(r);
    else if (word(r, "kernel"))
        read_kernel(r);
    else if (word(r, "buffer"))
        read_buffer(r);
    else if (word(r, "steps"))
        r->graph->steps = (int)whole(r), line_end(r);
    else if (word(r, "memory"))
        r->graph->local_bytes = key_whole(r, "local"), r->graph->wire_bytes = key_whole(r, "wire"),
        line_end(r);
    else
        fail(r, "input, unit, weight, region, kernel, buffer, steps or memory expected");
}

struct graph *ir_parse(const char *bytes, size_t n, const char **why)
{
    struct reader *r = TAKE(struct reader);
    r->at = bytes, r->end = bytes + n, r->line = 1, r->graph = TAKE(struct graph);
    if (setjmp(r->out)) {
        *why = r->why;
        return NULL;
    }
    need(r, "ir 1");
    key(r, "after");
    r->graph->level = (enum level)choice(r, level_names, LEVEL_MEMORY + 1, quoted(r));
    line_end(r);
    read_facts(r);
    while (r->at < r->end) read_line(r);
    *why = ir_check(r->graph);
    return *why ? NULL : r->graph;
}
