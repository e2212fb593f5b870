/* schedule.c: one function for each region body, named after it; at its top the addresses under
 * their IR names; then one call per line in the order of issue. Loops stay loops: the text is as
 * long for 48 layers as for 2, and only its numbers differ. It says when, where and with what; the
 * kernels and the device say how. */
#include "base/escape.h"
#include "emit/schedule.h"

#include <ctype.h>
#include <string.h>

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
    static const char *const word[] = {"d",
                                       "i",
                                       "n",
                                       "e",
                                       "micro",
                                       "local",
                                       "wire",
                                       "run",
                                       "run_shard",
                                       "gather",
                                       "reduce",
                                       "await",
                                       "tap",
                                       "iteration",
                                       "sum_ranks",
                                       "load_batch",
                                       "load_documents",
                                       "sum_replicas",
                                       "gather_replicas",
                                       "scatter_replicas",
                                       "reduce_after"};
    const char *id = emit_word(name);
    for (size_t k = 0; k < COUNT_OF(word); k++)
        if (!strcmp(id, word[k])) return intern_format("%s_", id);
    return id;
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
    schedule_say(&b->addresses, NULL, "%s *%s = %s;", type, name, address);
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
    const struct node *leaf = emit_walked(k);
    if (leaf) return graph_unit(g, attr_get_word(leaf, "unit"));
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
        schedule_say(&b->calls, from, "run(d, %d, &k_%s, (void *[]){%s0});", step, name,
                     list.bytes ? list.bytes : "");
        return;
    }
    const struct unit *u = unit_walked(s->places.graph, k);
    for (int i = 0; i < k->node.n; i++)
        if (k->node.item[i]->op == OP_sum_squares)
            schedule_say(&b->calls, "clears the sum", "run(d, %d, &k_%s, (void *[]){%s0});", step,
                         name, list.bytes);
    schedule_say(&b->calls, from ? from : u->name, "run_shard(d, %d, &k_%s, %s, (void *[]){%s0});",
                 step, name, schedule_instance(s, u, h.index), list.bytes);
}

static void say_tap(struct schedule_text *s, struct body_text *b, struct here h,
                    const struct node *n)
{
    const struct value *v = n->in[0].value;
    int64_t columns = shape_columns(v->shape);
    const char *name = declared_value(s, b, h, v);
    schedule_say(&b->calls, NULL, "tap(d, %d, %s, %s, %s, %ld, %ld);", n->step,
                 escape_c(attr_get_word(n, "name")), v->type == BF16 ? "TYPE_BF16" : "TYPE_F32",
                 name, shape_count(v->shape) / columns, columns);
}

static void say_node(struct schedule_text *s, struct body_text *b, struct here h,
                     const struct node *n)
{
    const struct graph *g = s->places.graph;
    if (n->op == OP_tap) say_tap(s, b, h, n);
    if (op_rows[n->op].class != CLASS_LANE) return;
    switch ((enum lane_op)n->op) {
    case LANE_OP_gather: schedule_say_gather(s, &b->calls, h, n); return;
    case LANE_OP_wait: schedule_say_wait(s, &b->calls, h, n); return;
    case LANE_OP_reduce: schedule_say_reduce(s, &b->calls, h, n); return;
    case LANE_OP_batch:
        if (graph_starts(g)) {
            schedule_say(&b->calls, NULL, "load_documents(d, %d, %s, %s, %s, micro);", n->step,
                         declared_value(s, b, h, g->input.item[0]),
                         declared_value(s, b, h, g->input.item[1]),
                         declared_value(s, b, h, graph_starts(g)));
            return;
        }
        schedule_say(&b->calls, NULL, "load_batch(d, %d, %s, %s, micro);", n->step,
                     declared_value(s, b, h, g->input.item[0]),
                     declared_value(s, b, h, g->input.item[1]));
        return;
    case LANE_OP_sum_ranks:
        schedule_say(&b->calls, NULL, "sum_ranks(d, %d, %s, %s, %ld, %s);", n->step,
                     escape_c(attr_get_word(n, "group")), declared_value(s, b, h, n->out[0]),
                     shape_count(n->out[0]->shape), schedule_event(s, attr_get(n, "event")));
        return;
    case LANE_OP_use: break;
    }
    bug("lane op %s is not for the schedule's text", op_rows[n->op].name);
}

static bool wants_micro(const struct region *r)
{
    for (struct node_walk at = {0}; next_node_of_region(r, &at);)
        if (at.node->op == OP_reduce || at.node->op == OP_batch || attr_or(at.node, "once", 0) ||
            (at.node->op == OP_gather && attr_or(at.node, "parts", 0)))
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

/* ── entry points ────────────────────────────────────────────────────────── */
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
    const char *count = schedule_loop_count(s, loop, r->count);
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

static void entry_point(struct schedule_text *s, struct text *to, const char *name,
                        const char *micro, enum phase phase)
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
             " * mesh: fsdp %ld, dp %ld; prefetch %ld; activation checkpointing %s\n"
             " * batch: %ld x %ld tokens on a device; accumulation %ld\n",
             f->fsdp, f->dp, f->prefetch, checkpoint_names[f->checkpoint_mode], f->local,
             f->sequence, f->accumulation);
    text_add(to, " * memory: local %ld bytes, wire %ld bytes\n", g->local_bytes, g->wire_bytes);
    text_add(to,
             " * steps: %d, the second argument of each call\n *\n"
             " * run and run_shard issue a kernel on the compute lane; gather and reduce issue a "
             "collective on\n"
             " * its own lane, sum_replicas on a third, after the reduction before it; await makes "
             "the compute\n"
             " * lane wait for the event of a collective.\n",
             g->steps);
    if (f->parts > 1)
        text_add(to,
                 " * Master weights and moments of a shard are cut into %ld parts, one of each "
                 "replica:\n"
                 " * gather_replicas puts the shard's weights together before it is gathered, "
                 "scatter_replicas\n"
                 " * gives each replica its part of a gradient%s.\n",
                 f->parts,
                 gradients_whole(f) ? "" : "; reduce_after keeps a shard until it is read");
    text_add(to,
             " * i is the layer; n counts iterations in the order in which they run. A function "
             "begins with the\n"
             " * addresses that its calls use. The comment after a call is the line of the plan "
             "that it comes\n"
             " * from; \"again\" marks what the forward pass computed already. */\n");
    text_add(to, "#include \"device.h\"\n#include \"kernels.h\"\n\n");
}

void emit_schedule_c(struct text *to, const struct graph *g, const struct plan *plan)
{
    struct schedule_text s = {.places = {.graph = g}, .e = emit_open(g), .plan = plan};
    struct text entry_points = {0};
    for (int i = 0; i < g->region.n; i++)
        for (int k = 0; k < g->region.item[i]->body.n; k++)
            body_function(&s, g->region.item[i], g->region.item[i]->body.item[k]);
    int known = s.places.constant.n;
    entry_point(&s, &entry_points, "schedule_setup", "", PHASE_SETUP);
    text_add(&entry_points, "\n");
    entry_point(&s, &entry_points, "schedule_micro_batch", ", int micro", PHASE_MICRO);
    text_add(&entry_points, "\n");
    entry_point(&s, &entry_points, "schedule_update", "", PHASE_UPDATE);

    heading(to, &s);
    top_constants(to, &s.places);
    variant_tables(&s, to);
    text_add_bytes(to, s.bodies.bytes ? s.bodies.bytes : "", s.bodies.length);
    new_constants(to, &s.places, known);
    text_add_bytes(to, entry_points.bytes, entry_points.length);
}
