/* Reads the text that ir_print.c writes, so that a pass can be tested alone. It checks everything:
 * names must be known, types and shapes must be those that op_infer derives, counts must add up.
 * The first error is one message with its line. */
#include "ir/ir_reader.h"

#include <stdlib.h>
#include <string.h>

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
    if (k->name) read_fail(r, "%s is made a second time", v->name);
    *k = (struct known){v->name, v};
    r->used++;
}

static struct value *known(struct reader *r, const char *n)
{
    struct known *k = r->room ? slot(r, n) : NULL;
    if (!k || !k->name) read_fail(r, "%s is not known here", n);
    return k->value;
}

static struct value *typed(struct reader *r)
{
    const char *n = read_name(r);
    read_need(r, ":");
    enum element type = (enum element)read_choice(r, element_names, 4, read_name(r));
    struct shape s = {0};
    read_need(r, "[");
    while (!read_see(r, "]")) {
        if (s.rank == SHAPE_RANK) read_fail(r, "a shape of more than %d axes", SHAPE_RANK);
        if (s.rank) read_need(r, ",");
        s.dim[s.rank++] = read_whole(r);
        if (s.dim[s.rank - 1] < 1) read_fail(r, "an axis of %lld", (long long)s.dim[s.rank - 1]);
    }
    return value_new(r->graph, n, type, s);
}

/* ── lines ───────────────────────────────────────────────────────────────────── */
static void read_facts(struct reader *r)
{
    struct facts *f = &r->graph->facts;
    read_need(r, "facts");
    f->sequence = read_key_whole(r, "sequence"), f->local = read_key_whole(r, "local"),
    f->tokens = read_key_whole(r, "tokens");
    f->accumulation = read_key_whole(r, "accumulation"), f->fsdp = read_key_whole(r, "fsdp"),
    f->dp = read_key_whole(r, "dp");
    f->prefetch = read_key_whole(r, "prefetch"),
    f->reduce_slots = read_key_whole(r, "reduce_slots"),
    f->loss_chunks = read_key_whole(r, "loss_chunks");
    f->reshard = (enum reshard)read_choice(r, reshard_names, 3, read_key_word(r, "reshard"));
    f->checkpoint_mode =
        (enum checkpoint_mode)read_choice(r, checkpoint_names, 4, read_key_word(r, "checkpoint"));
    f->checkpoint_every = read_key_whole(r, "every"),
    f->checkpoint_layers = read_key_word(r, "layers"),
    f->checkpoint_save = read_key_word(r, "save");
    f->checkpoint_rest =
        (enum checkpoint_mode)read_choice(r, checkpoint_names, 4, read_key_word(r, "rest")),
    f->checkpoint_rest_save = read_key_word(r, "rest_save");
    f->compute = (enum element)read_choice(r, element_names, 4, read_key_word(r, "compute"));
    f->fuse = read_key_whole(r, "fuse") != 0, f->has_ignore = read_key_whole(r, "has_ignore") != 0,
    f->ignore = read_key_whole(r, "ignore");
    f->beta1 = read_key_real(r, "beta1"), f->beta2 = read_key_real(r, "beta2"),
    f->eps = read_key_real(r, "eps"), f->clip = read_key_real(r, "clip");
    if (read_see(r, "rates=")) f->group_rates = read_whole(r) != 0;
    if (read_see(r, "apart=")) f->apart = read_whole(r) != 0;
    f->parts = read_see(r, "parts=") ? read_whole(r) : 1;
    if (!read_at_line_end(r))
        f->device = (enum device_kind)read_choice(r, device_names, 2, read_key_word(r, "device"));
    if (read_see(r, "attention="))
        f->attention_library =
            read_choice(r, (const char *const[]){"library"}, 1, read_quoted(r)) == 0;
    if (read_see(r, "experts="))
        f->experts = (enum experts)read_choice(r, experts_names, 3, read_quoted(r));
    if (read_see(r, "wgmma=")) f->wgmma = read_whole(r) != 0;
    if (read_see(r, "shared=") && (f->shared_bytes = read_whole(r)) < 1)
        read_fail(r, "no shared memory");
    if (!read_at_line_end(r) && (f->multiprocessors = read_key_whole(r, "multiprocessors")) < 1)
        read_fail(r, "no multiprocessors");
    const int64_t positive[] = {f->sequence,     f->local,       f->tokens,
                                f->accumulation, f->fsdp,        f->dp,
                                f->reduce_slots, f->loss_chunks, f->parts};
    for (size_t i = 0; i < COUNT_OF(positive); i++)
        if (positive[i] < 1) read_fail(r, "a count below 1");
    read_line_end(r);
}

static void read_unit(struct reader *r)
{
    struct unit *u = TAKE(struct unit);
    u->name = read_name(r);
    u->loop = read_key_word(r, "loop"), u->count = read_key_whole(r, "count"),
    u->variant = read_key_word(r, "variant");
    if (!read_at_line_end(r))
        u->elements = read_key_whole(r, "elements"),
        u->shard_elements = read_key_whole(r, "shard_elements"),
        u->state_offset = read_key_whole(r, "state_offset");
    u->part_elements = u->shard_elements, u->shard_offset = u->state_offset;
    if (read_see(r, "part_elements="))
        u->part_elements = read_whole(r), u->shard_offset = read_key_whole(r, "shard_offset");
    PUSH(&r->graph->unit, u);
    read_line_end(r);
}

static void read_weight(struct reader *r)
{
    struct weight *w = TAKE(struct weight);
    w->value = typed(r);
    w->value->weight = w;
    know(r, w->value);
    w->tensor = read_key_word(r, "tensor"), w->stack = read_key_whole(r, "stack");
    if (read_see(r, "beside=")) w->beside = read_quoted(r);
    w->unit = read_key_word(r, "unit");
    w->init =
        (enum weight_init)read_choice(r, weight_init_names, WEIGHT_INITS, read_key_word(r, "init"));
    w->std = read_key_real(r, "std"), w->offset = read_key_whole(r, "offset");
    if (read_see(r, "rate=")) {
        w->balances = true;
        w->rate = read_real(r), w->choices = read_key_whole(r, "choices");
    }
    read_place(r, &w->file, &w->line);
    PUSH(&r->graph->weight, w);
    read_line_end(r);
}

static struct attr read_attr(struct reader *r, const char *of)
{
    struct attr a = {.key = of};
    read_blanks(r);
    if (r->at < r->end && *r->at == '"') {
        a.kind = ATTR_WORD, a.word = read_quoted(r);
        return a;
    }
    bool is;
    const char *text = read_number_text(r, &is);
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
    while (!read_at_line_end(r)) {
        if (*r->at == '@') {
            read_place(r, &n->file, &n->line);
            break;
        }
        const char *word = read_name(r);
        if (read_see(r, "="))
            PUSH(&attr, read_attr(r, word));
        else if (!strcmp(word, "again"))
            n->again = true;
        else if (!strcmp(word, "kernel"))
            n->kernel = (int)read_whole(r);
        else if (!strcmp(word, "lane"))
            n->lane = (enum lane)read_choice(r, lane_names, 6, read_name(r));
        else if (!strcmp(word, "step"))
            n->step = (int)read_whole(r);
        else
            read_fail(r, "'%s' means nothing here", word);
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
    if (!parenthesis) read_fail(r, "an operation expected");
    if (colon && colon < parenthesis) {
        do {
            if (n->n_out == (int)COUNT_OF(out)) read_fail(r, "more than %d results", n->n_out);
            out[n->n_out++] = typed(r);
        } while (read_see(r, ","));
        read_need(r, "=");
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
    const char *op_name = read_name(r);
    int op = op_named(op_name);
    if (op == OP_COUNT) read_fail(r, "there is no operation '%s'", op_name);
    n->op = (enum op)op;
    VECTOR(struct operand) in = {0};
    read_need(r, "(");
    while (!read_see(r, ")")) {
        if (in.n) read_need(r, ",");
        read_blanks(r);
        bool number = r->at < r->end && (*r->at == '-' || (*r->at >= '0' && *r->at <= '9'));
        struct operand o = number ? num(read_real(r)) : by(known(r, read_name(r)));
        PUSH(&in, o);
    }
    n->in = in.item, n->n_in = in.n;
    read_annotations(r, n);
    enum element type[4];
    struct shape shape[4];
    const char *why = NULL;
    if (!op_infer(n->op, n->in, n->n_in, n->attr, n->n_attr, type, shape, &why))
        read_fail(r, "%s: %s", op_name, why);
    if (op_rows[op].results != n->n_out)
        read_fail(r, "%s has %d results, not %d", op_name, op_rows[op].results, n->n_out);
    for (int i = 0; i < n->n_out; i++) {
        if (n->out[i]->type != type[i] || !shape_same(n->out[i]->shape, shape[i]))
            read_fail(r, "%s is %s%s by its operands", n->out[i]->name, element_names[type[i]],
                      shape_text(shape[i]));
        n->out[i]->node = n;
        know(r, n->out[i]);
    }
    PUSH(&r->body->node, n);
    read_line_end(r);
}

/* A word at the start of a line, followed by a blank: "next x = y" is not a value called next. */
static bool word(struct reader *r, const char *text)
{
    const char *back = r->at;
    if (read_see(r, text) && r->at < r->end && *r->at == ' ') return true;
    r->at = back;
    return false;
}

static void read_body(struct reader *r)
{
    r->body = body_new(r->region, read_quoted(r));
    r->body->keep =
        (enum checkpoint_mode)read_choice(r, checkpoint_names, 4, read_key_word(r, "keep"));
    if (r->body->keep == CHECKPOINT_SELECTIVE) r->body->save = read_key_word(r, "save");
    while (!read_at_line_end(r)) {
        struct stretch s = {.from = read_whole(r)};
        read_need(r, "..");
        s.to = read_whole(r);
        PUSH(&r->body->layers, s);
    }
    read_line_end(r);
    for (;;) {
        const char *back = r->at;
        read_blanks(r);
        if (r->at - back != 4) {
            r->at = back;
            break;
        }
        if (word(r, "gradient")) {
            struct yield_gradient y = {.weight = known(r, read_name(r))};
            read_need(r, "=");
            y.value = known(r, read_name(r));
            if (!y.weight->weight) read_fail(r, "%s is not a weight", y.weight->name);
            PUSH(&r->body->gradient, y);
            read_line_end(r);
        } else if (word(r, "next")) {
            if (r->body->next.n == r->region->carry.n)
                read_fail(r, "more next values than carries");
            if (known(r, read_name(r)) != r->region->carry.item[r->body->next.n].value)
                read_fail(r, "next values are in the order of the carries");
            read_need(r, "=");
            PUSH(&r->body->next, known(r, read_name(r)));
            read_line_end(r);
        } else
            read_node(r);
    }
    if (r->body->next.n != r->region->carry.n)
        read_fail(r, "%d carries, but %d next values", r->region->carry.n, r->body->next.n);
}

static void read_region(struct reader *r)
{
    const char *n = read_name(r);
    read_need(r, "phase=");
    enum phase phase = (enum phase)read_choice(r, phase_names, 3, read_name(r));
    read_need(r, "run=");
    enum direction direction = (enum direction)read_choice(r, direction_names, 3, read_name(r));
    int64_t count = read_key_whole(r, "count");
    r->region = region_new(r->graph, n, phase, direction, count, read_key_word(r, "loop"));
    if (read_see(r, "mirror=")) r->region->mirror = read_quoted(r);
    if (read_see(r, "within=")) r->region->within = read_quoted(r);
    read_line_end(r);
    VECTOR(const char *) last = {0};
    while (read_see(r, "  carry") || read_see(r, "carry")) {
        struct carry c = {.value = typed(r)};
        know(r, c.value);
        read_key(r, "first");
        c.first = known(r, read_name(r));
        read_key(r, "last");
        const char *l = read_name(r);
        PUSH(&last, l);
        PUSH(&r->region->carry, c);
        read_line_end(r);
    }
    while (word(r, "body")) read_body(r);
    for (int i = 0; i < last.n; i++) {
        struct carry *c = &r->region->carry.item[i];
        c->last = value_new(r->graph, last.item[i], c->value->type, c->value->shape);
        know(r, c->last);
    }
    read_need(r, "end");
    read_line_end(r);
}

static void read_kernel_class(struct reader *r, struct kernel *k)
{
    const char *name = read_key_word(r, "class");
    int core = op_named(name);
    k->class = KERNEL_CORE, k->core = (enum op)core;
    if (core == OP_COUNT)
        k->class = (enum kernel_class)read_choice(r, kernel_class_names, KERNEL_CORE, name);
    else if (op_rows[core].class != CLASS_CORE)
        read_fail(r, "'%s' is not an op with a kernel of its own", name);
}

static void read_kernel(struct reader *r)
{
    struct kernel k = {.number = (int)read_whole(r)};
    k.name = read_key_word(r, "name");
    read_kernel_class(r, &k);
    k.rows = read_key_whole(r, "rows"), k.columns = read_key_whole(r, "columns");
    k.flops = read_key_real(r, "flops"), k.bytes = read_key_real(r, "bytes");
    PUSH(&r->graph->kernel, k);
    read_line_end(r);
}

static void read_buffer(struct reader *r)
{
    struct buffer *b = TAKE(struct buffer);
    b->name = read_name(r);
    b->kind =
        (enum buffer_kind)read_choice(r, buffer_kind_names, BUFFER_KINDS, read_key_word(r, "kind"));
    b->segment =
        (enum segment)read_choice(r, segment_names, SEGMENT_WIRE + 1, read_key_word(r, "segment"));
    b->offset = read_key_whole(r, "offset"), b->bytes = read_key_whole(r, "bytes"),
    b->entries = read_key_whole(r, "entries"), b->stride = read_key_whole(r, "stride");
    b->index = (enum buffer_index)read_choice(r, buffer_index_names, BUFFER_INDICES,
                                              read_key_word(r, "index"));
    b->live_from = (int)read_key_whole(r, "live_from"),
    b->live_to = (int)read_key_whole(r, "live_to");
    if (read_see(r, "idle=")) {
        b->idle_entry = read_whole(r);
        b->idle_from = (int)read_key_whole(r, "idle_from");
        b->idle_to = (int)read_key_whole(r, "idle_to");
    }
    if (!read_at_line_end(r)) b->over = read_key_word(r, "over");
    PUSH(&r->graph->buffer, b);
    read_line_end(r);
}

static void read_line(struct reader *r)
{
    if (word(r, "input")) {
        struct value *v = typed(r);
        know(r, v);
        PUSH(&r->graph->input, v);
        read_line_end(r);
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
        r->graph->steps = (int)read_whole(r), read_line_end(r);
    else if (word(r, "memory"))
        r->graph->local_bytes = read_key_whole(r, "local"),
        r->graph->wire_bytes = read_key_whole(r, "wire"), read_line_end(r);
    else
        read_fail(r, "input, unit, weight, region, kernel, buffer, steps or memory expected");
}

struct graph *ir_parse(const char *bytes, size_t n, const char **why)
{
    struct reader *r = TAKE(struct reader);
    r->at = bytes, r->end = bytes + n, r->line = 1, r->graph = TAKE(struct graph);
    if (setjmp(r->out)) {
        *why = r->why;
        return NULL;
    }
    read_need(r, "ir 1");
    read_key(r, "after");
    r->graph->level = (enum level)read_choice(r, level_names, LEVEL_MEMORY + 1, read_quoted(r));
    read_line_end(r);
    read_facts(r);
    while (r->at < r->end) read_line(r);
    *why = ir_check(r->graph);
    return *why ? NULL : r->graph;
}
