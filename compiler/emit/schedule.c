/* schedule.c: one function for each region body, named after it; at its top the addresses under
 * their IR names; then one call per line in the order of issue. Loops stay loops: the text is as
 * long for 48 layers as for 2, and only its numbers differ. It says when, where and with what; the
 * kernels and the device say how. */
#include "base/escape.h"
#include "emit/place.h"

#include <ctype.h>
#include <string.h>

struct schedule_text {
    struct places places;
    const struct emit *e;
    const struct plan *plan;
    struct text bodies;
};

/* A line of a body before it is aligned. */
/* a line that begins with if depends on the number of layers: not aligned */
struct line {
    const char *code, *comment;
};
struct lines {
    VECTOR(struct line) item;
};

static void say(struct lines *to, const char *comment, const char *format, ...) PRINTF_LIKE(3, 4);
static void say(struct lines *to, const char *comment, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    PUSH(&to->item, ((struct line){text_vformat(format, args), comment}));
    va_end(args);
}

static bool aligned(const struct line *l)
{
    return l->comment && strlen(l->code) <= 110 && strncmp(l->code, "if ", 3);
}

static void write_lines(struct text *to, const struct lines *from)
{
    size_t widest = 0;
    for (int i = 0; i < from->item.n; i++)
        if (aligned(&from->item.item[i]) && strlen(from->item.item[i].code) > widest)
            widest = strlen(from->item.item[i].code);
    for (int i = 0; i < from->item.n; i++) {
        const struct line *l = &from->item.item[i];
        if (!l->comment)
            text_add(to, "    %s\n", l->code);
        else
            text_add(to, "    %-*s  /* %s */\n", aligned(l) ? (int)widest : 0, l->code,
                     escape_comment(l->comment));
    }
}

/* ── names ───────────────────────────────────────────────────────────────────── */
static const char *function_name(const struct region *r, const struct body *b)
{
    return emit_identifier(b->name[0] ? text_format("%s.%s", r->name, b->name)
                                      : text_format("%s", r->name));
}

/* What a value is called in a body's function: its IR name, out of the way of what the function
 * says itself. */
static const char *local_name(const char *name)
{
    static const char *const word[] = {
        "d",         "i",      "n",      "e",     "micro", "local",     "wire",      "run",
        "run_shard", "gather", "reduce", "await", "tap",   "iteration", "sum_ranks", "load_batch"};
    const char *id = emit_word(name);
    for (size_t k = 0; k < COUNT_OF(word); k++)
        if (!strcmp(id, word[k])) return intern_format("%s_", id);
    return id;
}

static const char *event_constant(struct schedule_text *s, int64_t event)
{
    const struct graph *g = s->places.graph;
    for (int i = 0; i < g->region.n; i++)
        for (int k = 0; k < g->region.item[i]->body.n; k++)
            for (int n = 0; n < g->region.item[i]->body.item[k]->node.n; n++) {
                const struct node *node = g->region.item[i]->body.item[k]->node.item[n];
                bool gather = node->op == OP_gather,
                     lane = gather || node->op == OP_reduce || node->op == OP_sum_ranks;
                if (!lane || attr_get(node, "event") != event) continue;
                const char *what = node->op == OP_sum_ranks
                                       ? node->out[0]->name
                                       : attr_get_word(node, gather ? "into" : "from");
                return place_constant(&s->places, text_format("event %ld", event),
                                      text_format("%s.done", place_slot_name(what)), event,
                                      "event");
            }
    bug("event %ld belongs to no collective", event);
}

/* The event of an entry of slots; what is not a loop's has one. */
static const char *event_ring(struct schedule_text *s, int64_t event, int64_t ring,
                              const char *entry, bool loop)
{
    const char *name = event_constant(s, event);
    return loop ? place_entry(name, entry, ring, NULL) : name;
}

static const char *shifted(const char *running, int64_t shift)
{
    if (!strcmp(running, "0")) return text_format("%ld", shift);
    return shift < 0 ? text_format("(%s - %ld)", running, -shift)
                     : text_format("(%s + %ld)", running, shift);
}

/* Of a sum that stands in another sum. */
static const char *without_parentheses(const char *sum)
{
    return sum[0] == '(' ? intern_bytes(sum + 1, strlen(sum) - 2) : sum;
}

static const char *loop_count(struct schedule_text *s, const char *loop, int64_t count)
{
    return place_constant(&s->places, text_format("count %s", loop), text_format("%s.count", loop),
                          count, "iterations");
}

static const char *instance_number(struct schedule_text *s, const struct unit *u, const char *index)
{
    const char *first = place_unit(&s->places, u);
    return u->loop[0] ? text_format("%s + %s", first, place_instance(&s->places, u, index)) : first;
}

/* ── lanes ───────────────────────────────────────────────────────────────────── */
/* Which instance of its unit a gather fetches: a loop that runs down begins with the last. */
static const char *gather_instance(struct schedule_text *s, struct here h, const struct node *n,
                                   const struct unit *u)
{
    int64_t shift = attr_get(n, "shift");
    if (!u->loop[0]) return place_unit(&s->places, u);
    const char *index = without_parentheses(shifted(h.running, shift));
    if (attr_get(n, "down")) {
        index = loop_count(s, u->loop, attr_get(n, "count"));
        if (shift + 1) index = text_format("%s - %ld", index, shift + 1);
        if (strcmp(h.running, "0")) index = text_format("%s - %s", index, h.running);
    }
    if (place_has_variants(s->places.graph, u->loop))
        return text_format("%s_instance[%s]", emit_identifier(u->loop), index);
    const char *first = place_unit(&s->places, u);
    return strcmp(index, "0") ? text_format("%s + %s", first, index) : first;
}

/* In which iterations it is issued: "if (i < 3) ", "" for all. */
static const char *gather_condition(struct here h, const struct node *n)
{
    const char *once = attr_or(n, "once", 0) ? "micro & MICRO_FIRST" : "";
    if (h.region->direction == ONCE) return once[0] ? text_format("if (%s) ", once) : "";
    int64_t from = attr_get(n, "from"), to = attr_get(n, "to");
    const char *after = from > 0 ? text_format("%s >= %ld", h.running, from) : "",
               *before = to < h.region->count ? text_format("%s < %ld", h.running, to) : "";
    struct text all = {0};
    const char *const condition[] = {once, after, before};
    for (size_t i = 0; i < COUNT_OF(condition); i++) {
        bool first = !all.length, sum = i == 0 && (after[0] || before[0]);
        if (condition[i][0])
            text_add(&all, "%s%s%s%s", first ? "if (" : " && ", sum ? "(" : "", condition[i],
                     sum ? ")" : "");
    }
    return all.length ? text_format("%s) ", all.bytes) : "";
}

static void say_gather(struct schedule_text *s, struct lines *to, struct here h,
                       const struct node *n)
{
    const struct graph *g = s->places.graph;
    const struct unit *u = place_find_unit(g, attr_get_word(n, "unit"));
    const char *target = shifted(h.running, attr_get(n, "shift"));
    const char *instance = gather_instance(s, h, n, u);
    const char *when = gather_condition(h, n);
    const char *into = attr_get_word(n, "into");
    say(to, text_format("%s ahead", attr_get_word(n, "unit")), "%sgather(d, %d, %s, %s, %s);", when,
        n->step, instance, place_slot(&s->places, into, u, target, attr_get(n, "ring")),
        event_ring(s, attr_get(n, "event"), attr_get(n, "ring"), target, u->loop[0]));
}

/* Whether an event is one of a ring that a loop's slots have. */
static bool event_of_loop(const struct graph *g, int64_t event)
{
    for (int i = 0; i < g->region.n; i++)
        for (int k = 0; k < g->region.item[i]->body.n; k++)
            for (int n = 0; n < g->region.item[i]->body.item[k]->node.n; n++) {
                const struct node *node = g->region.item[i]->body.item[k]->node.item[n];
                if ((node->op == OP_gather || node->op == OP_reduce) &&
                    attr_get(node, "event") == event)
                    return place_find_unit(g, attr_get_word(node, "unit"))->loop[0] != 0;
            }
    return false;
}

static void say_wait(struct schedule_text *s, struct lines *to, struct here h, const struct node *n)
{
    int64_t event = attr_get(n, "event"), ring = attr_get(n, "ring");
    bool loop = event_of_loop(s->places.graph, event);
    const char *entry =
        attr_or(n, "shift", 0) ? shifted(h.running, attr_get(n, "shift")) : h.running;
    if (loop && attr_or(n, "all", 0))
        say(to, NULL, "for (int e = 0; e < %ld; e++) await(d, %d, %s + e);", ring, n->step,
            event_constant(s, event));
    else
        say(to, NULL, "%sawait(d, %d, %s);",
            attr_or(n, "once", 0) ? "if (micro & MICRO_FIRST) " : "", n->step,
            event_ring(s, event, ring, entry, loop));
}

static void say_reduce(struct schedule_text *s, struct lines *to, struct here h,
                       const struct node *n)
{
    const struct graph *g = s->places.graph;
    const struct unit *u = place_find_unit(g, attr_get_word(n, "unit"));
    const struct unit *mine = u;
    for (int i = 0; i < g->unit.n; i++)
        if (u->loop[0] && !strcmp(g->unit.item[i]->loop, u->loop) &&
            !strcmp(g->unit.item[i]->variant, h.body->name))
            mine = g->unit.item[i];
    const char *stage = graph_buffer(g, "stage") ? place_plain(&s->places, "stage") : "0";
    /* of a gradient that comes in parts */
    static const char *const part[] = {"0", "micro & MICRO_LAST", "micro & MICRO_FIRST", "micro"};
    say(to, mine->name, "reduce(d, %d, %s, %s, %s, %s, %s, %s);", n->step,
        instance_number(s, mine, h.index),
        place_slot(&s->places, attr_get_word(n, "from"), u, h.running, attr_get(n, "ring")), stage,
        place_state(&s->places, BUFFER_GRADIENT, mine, h.index),
        part[2 * attr_get(n, "first") + attr_get(n, "last")],
        event_ring(s, attr_get(n, "event"), attr_get(n, "ring"), h.running, u->loop[0]));
}

/* ── compute ─────────────────────────────────────────────────────────────────── */
struct body_text {
    struct lines addresses, calls;
    VECTOR(const char *) known;
};

/* The name under which an address is passed; declares it at the first use. */
static const char *declared(struct body_text *b, const char *type, const char *name,
                            const char *address)
{
    name = local_name(name);
    for (int i = 0; i < b->known.n; i++)
        if (b->known.item[i] == name) return name;
    PUSH(&b->known, name);
    say(&b->addresses, NULL, "%s *%s = %s;", type, name, address);
    return name;
}

static const char *declared_value(struct schedule_text *s, struct body_text *b, struct here h,
                                  const struct value *v)
{
    struct address a = place_value(&s->places, h, v);
    if (!a.base) return declared(b, "void", a.name, a.at);
    return declared(b, "void", a.name,
                    text_format("%s + %s", declared(b, "char", a.base, a.base_address), a.at));
}

static const struct unit *unit_walked(const struct graph *g, const struct emit_kernel *k)
{
    for (int i = 0; i < k->node.n; i++)
        for (int x = 0; x < k->node.item[i]->n_in; x++) {
            const struct value *v = k->node.item[i]->in[x].value;
            if (v && emit_root(v)->node &&
                (emit_root(v)->node->op == OP_state || emit_root(v)->node->op == OP_decay))
                return graph_unit(g, attr_get_word(emit_root(v)->node, "unit"));
        }
    bug("kernel %s walks no unit", k->kernel->name);
}

static const char *argument_text(struct schedule_text *s, struct body_text *b, struct here h,
                                 const struct emit_kernel *k, const struct argument *a)
{
    switch (a->kind) {
    case ARGUMENT_IN:
    case ARGUMENT_OUT: return declared_value(s, b, h, a->value);
    case ARGUMENT_STATE:
        return declared(
            b, "void", a->name,
            place_state(&s->places, a->state, unit_walked(s->places.graph, k), h.index));
    case ARGUMENT_SCALARS:
        return declared(b, "void", "scalars", place_plain(&s->places, "scalars"));
    case ARGUMENT_METRIC:
        return declared(b, "void", text_format("metric.%s", a->name),
                        place_plain(&s->places, text_format("metric.%s", a->name)));
    }
    bug("argument kind %d", (int)a->kind);
}

/* "llama.plan:30, again" */
static const char *origin(const struct emit_kernel *k)
{
    struct text t = {0};
    const char *file = NULL;
    int line = 0;
    bool again = false;
    for (int i = 0; i < k->node.n; i++) {
        const struct node *n = k->node.item[i];
        again |= n->again;
        if (!n->file || (file && !strcmp(file, n->file) && line == n->line)) continue;
        if (file && !strcmp(file, n->file)) {
            bool told = false;
            for (int j = 0; j < i; j++)
                told |= k->node.item[j]->file && k->node.item[j]->line == n->line;
            if (!told) text_add(&t, " %d", n->line);
        } else
            text_add(&t, "%s%s:%d", t.length ? " " : "", n->file, n->line);
        file = n->file, line = n->line;
    }
    if (again) text_add(&t, "%sagain", t.length ? ", " : "");
    return t.length ? t.bytes : NULL;
}

static void say_kernel(struct schedule_text *s, struct body_text *b, struct here h,
                       const struct emit_kernel *k)
{
    struct argument *argument;
    int n = emit_arguments(s->e, k, &argument);
    struct text list = {0};
    for (int i = 0; i < n; i++) text_add(&list, "%s, ", argument_text(s, b, h, k, &argument[i]));
    int step = k->node.item[0]->step;
    const char *name = k->kernel->name, *from = origin(k);
    if (!emit_walks_shard(k)) {
        say(&b->calls, from, "run(d, %d, &k_%s, (void *[]){%s0});", step, name,
            list.bytes ? list.bytes : "");
        return;
    }
    const struct unit *u = unit_walked(s->places.graph, k);
    for (int i = 0; i < k->node.n; i++)
        if (k->node.item[i]->op == OP_sum_squares)
            say(&b->calls, "to begin", "run(d, %d, &k_%s, (void *[]){%s0});", step, name,
                list.bytes);
    say(&b->calls, from ? from : u->name, "run_shard(d, %d, &k_%s, %s, (void *[]){%s0});", step,
        name, instance_number(s, u, h.index), list.bytes);
}

static void say_tap(struct schedule_text *s, struct body_text *b, struct here h,
                    const struct node *n)
{
    const struct value *v = n->in[0].value;
    int64_t columns = shape_columns(v->shape);
    const char *name = declared_value(s, b, h, v);
    say(&b->calls, NULL, "tap(d, %d, %s, %s, %s, %ld, %ld);", n->step,
        escape_c(attr_get_word(n, "name")), v->type == BF16 ? "TYPE_BF16" : "TYPE_F32", name,
        shape_count(v->shape) / columns, columns);
}

static void say_node(struct schedule_text *s, struct body_text *b, struct here h,
                     const struct node *n)
{
    const struct graph *g = s->places.graph;
    if (n->op == OP_tap) say_tap(s, b, h, n);
    if (op_rows[n->op].class != CLASS_LANE) return;
    switch ((enum lane_op)n->op) {
    case LANE_OP_gather: say_gather(s, &b->calls, h, n); return;
    case LANE_OP_wait: say_wait(s, &b->calls, h, n); return;
    case LANE_OP_reduce: say_reduce(s, &b->calls, h, n); return;
    case LANE_OP_batch:
        say(&b->calls, NULL, "load_batch(d, %d, %s, %s, micro);", n->step,
            declared_value(s, b, h, g->input.item[0]), declared_value(s, b, h, g->input.item[1]));
        return;
    case LANE_OP_sum_ranks:
        say(&b->calls, NULL, "sum_ranks(d, %d, %s, %s, %ld, %s);", n->step,
            escape_c(attr_get_word(n, "group")), declared_value(s, b, h, n->out[0]),
            shape_count(n->out[0]->shape), event_constant(s, attr_get(n, "event")));
        return;
    case LANE_OP_use: break;
    }
    bug("lane op %s is not for the schedule's text", op_rows[n->op].name);
}

static bool wants_micro(const struct region *r)
{
    for (int k = 0; k < r->body.n; k++)
        for (int i = 0; i < r->body.item[k]->node.n; i++)
            if (r->body.item[k]->node.item[i]->op == OP_reduce ||
                r->body.item[k]->node.item[i]->op == OP_batch ||
                attr_or(r->body.item[k]->node.item[i], "once", 0))
                return true;
    return false;
}

/* Whether a text uses the variable of that one letter. */
static bool mentions(const char *text, char letter)
{
    for (const char *c = text; c && *c; c++)
        if (*c == letter && !isalnum((unsigned char)c[1]) && c[1] != '_' &&
            (c == text || (!isalnum((unsigned char)c[-1]) && c[-1] != '_')))
            return true;
    return false;
}

static bool at_the_top(const struct constant_of *c)
{
    return !strncmp(c->key, "event", 5) || !strncmp(c->key, "unit ", 5);
}

/* Units and events, by number, since the runtime names them by number too. */
static void top_constants(struct text *to, const struct places *p)
{
    int left = 0, widest = 0;
    for (int i = 0; i < p->constant.n; i++) {
        const struct constant_of *c = &p->constant.item[i];
        if (!at_the_top(c)) continue;
        left++;
        if ((int)strlen(c->name) > widest) widest = (int)strlen(c->name);
    }
    if (!left) return;
    text_add(to, "enum {\n");
    for (int events = 0; events < 2; events++)
        for (int64_t last = -1;;) {
            const struct constant_of *next = NULL;
            for (int i = 0; i < p->constant.n; i++) {
                const struct constant_of *c = &p->constant.item[i];
                bool event = !strncmp(c->key, "event", 5),
                     mine = at_the_top(c) && event == (events == 1);
                if (mine && c->value > last && (!next || c->value < next->value)) next = c;
            }
            if (!next) break;
            last = next->value;
            text_add(to, "    %-*s = %ld%s /* %s */\n", widest, next->name, next->value,
                     --left ? "," : "", escape_comment(next->note));
        }
    text_add(to, "};\n\n");
}

/* The constants that have been used since the first `known` of them. */
static void new_constants(struct text *to, const struct places *p, int known)
{
    int widest = 0, n = 0;
    for (int i = known; i < p->constant.n; i++)
        if (!at_the_top(&p->constant.item[i]) && (int)strlen(p->constant.item[i].name) > widest)
            widest = (int)strlen(p->constant.item[i].name);
    for (int i = known; i < p->constant.n; i++) {
        const struct constant_of *c = &p->constant.item[i];
        if (at_the_top(c)) continue;
        text_add(to, "static const int64_t %-*s = %ld;", widest, c->name, c->value);
        if (c->note) text_add(to, " /* %s */", escape_comment(c->note));
        text_add(to, "\n");
        n++;
    }
    if (n) text_add(to, "\n");
}

static void body_function(struct schedule_text *s, const struct region *r, const struct body *body)
{
    struct body_text b = {0};
    struct here h = here_of(r, body);
    s->places.by_unit = r->phase == PHASE_UPDATE;
    int kernel = 0, known = s->places.constant.n;
    for (int i = 0; i < body->node.n; i++) {
        const struct node *n = body->node.item[i];
        if (!n->kernel)
            say_node(s, &b, h, n);
        else if (n->kernel != kernel)
            say_kernel(s, &b, h, &s->e->kernel.item[n->kernel - 1]);
        if (n->step) kernel = n->kernel;
    }
    struct text *to = &s->bodies;
    new_constants(to, &s->places, known);
    text_add(to, "static void %s(struct device *d%s%s%s)\n{\n", function_name(r, body),
             r->direction == ONCE ? "" : ", int64_t i", r->direction == DOWN ? ", int64_t n" : "",
             wants_micro(r) ? ", int micro" : "");
    struct text text = {0};
    write_lines(&text, &b.addresses);
    if (b.addresses.item.n && b.calls.item.n) text_add(&text, "\n");
    write_lines(&text, &b.calls);
    if (r->direction != ONCE && !mentions(text.bytes, 'i')) text_add(to, "    (void)i;\n");
    if (r->direction == DOWN && !mentions(text.bytes, 'n')) text_add(to, "    (void)n;\n");
    text_add(to, "%s}\n\n", text.bytes ? text.bytes : "    (void)d;\n");
}

/* ── the three doors ─────────────────────────────────────────────────────────── */
static void call_bodies(struct schedule_text *s, struct text *to, const struct region *r)
{
    const char *micro = wants_micro(r) ? ", micro" : "";
    if (r->direction == ONCE) {
        text_add(to, "    %s(d%s);\n", function_name(r, r->body.item[0]), micro);
        return;
    }
    /* the update runs over the instances of one unit, named after the region's dot */
    const char *loop = r->phase == PHASE_UPDATE && place_has_variants(s->places.graph, r->loop)
                           ? text_format("unit%s", strchr(r->name, '.'))
                           : r->loop;
    const char *count = loop_count(s, loop, r->count);
    bool down = r->direction == DOWN;
    if (down)
        text_add(to, "    for (int64_t n = 0, i = %s - 1; i >= 0; n++, i--) {\n", count);
    else
        text_add(to, "    for (int64_t i = 0; i < %s; i++) {\n", count);
    text_add(to, "        iteration(d, i);\n");
    for (int k = 0; k < r->body.n; k++) {
        const struct body *b = r->body.item[k];
        text_add(to, "        ");
        if (r->body.n > 1) text_add(to, "if (%s_variant[i] == %d) ", emit_identifier(r->loop), k);
        text_add(to, "%s(d, i%s%s);\n", function_name(r, b), down ? ", n" : "", micro);
    }
    text_add(to, "    }\n    iteration(d, -1);\n");
}

static void door(struct schedule_text *s, struct text *to, const char *name, const char *micro,
                 enum phase phase)
{
    text_add(to, "void %s(struct device *d%s)\n{\n", name, micro);
    size_t before = to->length;
    for (int i = 0; i < s->places.graph->region.n; i++)
        if (s->places.graph->region.item[i]->phase == phase)
            call_bodies(s, to, s->places.graph->region.item[i]);
    if (to->length == before) text_add(to, "    (void)d;\n");
    if (micro[0] && !strstr(to->bytes + before, ", micro)")) text_add(to, "    (void)micro;\n");
    text_add(to, "}\n");
}

/* Which variant an iteration runs, which of its variant's instances it is, and that instance's
 * number. */
static void variant_tables(struct schedule_text *s, struct text *to)
{
    const struct graph *g = s->places.graph;
    VECTOR(const char *) done = {0};
    for (int i = 0; i < g->region.n; i++) {
        const struct region *r = g->region.item[i];
        bool known = !place_has_variants(g, r->loop) || r->body.n < 2;
        for (int k = 0; k < done.n; k++) known |= !strcmp(done.item[k], r->loop);
        if (known) continue;
        PUSH(&done, r->loop);
        static const char *const table[] = {"variant", "place", "instance"};
        for (int t = 0; t < 3; t++) {
            int64_t *seen = TAKE_MANY(int64_t, r->body.n);
            text_add(to, "static const int64_t %s_%s[] = {", emit_identifier(r->loop), table[t]);
            for (int64_t at = 0; at < r->count; at++)
                for (int k = 0; k < r->body.n; k++) {
                    bool here = false;
                    for (int w = 0; w < r->body.item[k]->layers.n; w++)
                        here |= at >= r->body.item[k]->layers.item[w].from &&
                                at < r->body.item[k]->layers.item[w].to;
                    if (!here) continue;
                    int64_t first = 0;
                    for (int u = 0;
                         u < g->unit.n && (strcmp(g->unit.item[u]->loop, r->loop) ||
                                           strcmp(g->unit.item[u]->variant, r->body.item[k]->name));
                         u++)
                        first += g->unit.item[u]->count;
                    text_add(to, "%s%ld", at ? ", " : "",
                             t == 0   ? k
                             : t == 1 ? seen[k]
                                      : first + seen[k]);
                    seen[k]++;
                }
            text_add(to, "};\n");
        }
    }
    if (done.n) text_add(to, "\n");
}

static void heading(struct text *to, const struct schedule_text *s)
{
    const struct graph *g = s->places.graph;
    const struct facts *f = &g->facts;
    text_add(to,
             "/* What a rank does, in order: %s\n * Generated by planc; the same plan gives the "
             "same bytes.\n *\n",
             escape_comment(s->plan->title ? s->plan->title : s->plan->architecture));
    text_add(to,
             " * mesh: fsdp %ld, dp %ld; local batch %ld sequences of %ld; accumulation %ld; "
             "checkpointing %s; prefetch %ld\n",
             f->fsdp, f->dp, f->local, f->sequence, f->accumulation,
             checkpoint_names[f->checkpoint_mode], f->prefetch);
    text_add(to, " * memory: local %ld bytes, wire %ld bytes\n", g->local_bytes, g->wire_bytes);
    text_add(to,
             " * steps: %d; run = compute lane, gather and reduce = lanes of their own, await = "
             "compute waits\n *\n",
             g->steps);
    text_add(to, " * i is the layer, n counts iterations in the order in which they run. A name at "
                 "the top of a function is an address;\n"
                 " * the comment behind a call is the plan's line that it comes from, \"again\" "
                 "when it is computed a second time. */\n"
                 "#include \"device.h\"\n#include \"kernels.h\"\n\n");
}

void emit_schedule_c(struct text *to, const struct graph *g, const struct plan *plan)
{
    struct schedule_text s = {.places = {.graph = g}, .e = emit_open(g), .plan = plan};
    struct text doors = {0};
    for (int i = 0; i < g->region.n; i++)
        for (int k = 0; k < g->region.item[i]->body.n; k++)
            body_function(&s, g->region.item[i], g->region.item[i]->body.item[k]);
    int known = s.places.constant.n;
    door(&s, &doors, "schedule_setup", "", PHASE_SETUP);
    text_add(&doors, "\n");
    door(&s, &doors, "schedule_micro_batch", ", int micro", PHASE_MICRO);
    text_add(&doors, "\n");
    door(&s, &doors, "schedule_update", "", PHASE_UPDATE);

    heading(to, &s);
    top_constants(to, &s.places);
    variant_tables(&s, to);
    text_add_bytes(to, s.bodies.bytes ? s.bodies.bytes : "", s.bodies.length);
    new_constants(to, &s.places, known);
    text_add_bytes(to, doors.bytes, doors.length);
}
