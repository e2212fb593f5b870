/* A repeat stays one region, however many layers it has. First the differences between layers are
 * found: the body is walked once per layer with constants only (`deciding`), and layers with the
 * same decisions share a body. One walk is enough if no decision depends on the layer, which is the
 * common case. Names assigned before the repeat and again inside it are carried from layer to
 * layer; names first assigned inside end with it. */
#include "passes/lower.h"
#include "passes/pipeline.h"

struct group {
    const char *outcome;
    const char *name;
    VECTOR(struct stretch) layers;
};

struct loop {
    const struct ast *block;
    int64_t count;
    const char *name;
    struct region *region;
    struct binding *before; /* the names before the repeat, as they were */
    VECTOR(struct group) group;
    VECTOR(int) carried; /* indices into before, carry by carry */
};

static void restore(struct lower *l, const struct loop *loop)
{
    l->name.n = l->outer_names;
    if (l->outer_names)
        memcpy(l->name.item, loop->before, sizeof *loop->before * (size_t)l->outer_names);
}

/* What a layer is made of is decided layer by layer; a thousand is far beyond any model. */

static bool read_head(struct lower *l, struct loop *loop)
{
    const struct ast *head = loop->block->kid[0];
    if (head->n != 3 || head->kid[2]->kind != AST_STRING) {
        add_help(complain(head->at, "repeat takes a number and the prefix of the names inside"),
                 "repeat layers \"model.layers.{i}\" { … }");
        return false;
    }
    if (l->in_repeat) {
        add_note(complain(head->at, "a repeat inside a repeat"), l->repeat_at, "the outer one");
        return false;
    }
    const char *prefix = head->kid[2]->text;
    for (const char *s = strchr(prefix, '{'); s; s = strchr(s + 1, '{'))
        if (strncmp(s, "{i}", 3)) {
            complain(head->kid[2]->at,
                     "only {i}, the number of the layer, can be used in a prefix");
            return false;
        }
    if (!lower_dimension(l, head->kid[1], "the number of layers", 1, &loop->count)) return false;
    if (loop->count > LAYERS_LIMIT) {
        lower_trace(l,
                    complain(head->kid[1]->at, "%lld layers are more than planc can count (%d)",
                             (long long)loop->count, LAYERS_LIMIT),
                    head->kid[1]);
        return false;
    }
    const char *stem = head->kid[1]->kind == AST_NAME ? head->kid[1]->text : "layers";
    loop->name = stem;
    for (int k = 2; graph_region(l->g, text_format("%s.forward", loop->name)); k++)
        loop->name = text_format("%s%d", stem, k);
    return true;
}

static void add_layer(struct loop *loop, const char *outcome, const char *decision, int64_t i)
{
    int k = 0;
    while (k < loop->group.n && loop->group.item[k].outcome != outcome) k++;
    if (k == loop->group.n) {
        const char *name = decision ? decision : text_format("variant%d", k + 1);
        for (int j = 0; j < k; j++)
            if (!strcmp(loop->group.item[j].name, name)) name = text_format("variant%d", k + 1);
        PUSH(&loop->group, ((struct group){.outcome = outcome, .name = name}));
    }
    struct group *g = &loop->group.item[k];
    if (g->layers.n && g->layers.item[g->layers.n - 1].to == i)
        g->layers.item[g->layers.n - 1].to++;
    else
        PUSH(&g->layers, ((struct stretch){i, i + 1}));
}

/* Which way every layer decides, and which names are carried. */
static void decide(struct lower *l, struct loop *loop)
{
    int before = error_count();
    bool *assigned = TAKE_MANY(bool, l->outer_names + 1);
    l->deciding = true;
    for (l->i = 0; l->i < loop->count; l->i++) {
        restore(l, loop);
        l->outcome.n = 0;
        l->decision = NULL;
        lower_items(l, loop->block->kid[1]);
        for (int k = 0; k < l->outer_names; k++) assigned[k] |= l->name.item[k].assigned;
        PUSH(&l->outcome, 0);
        add_layer(loop, intern(l->outcome.item), l->decision, l->i);
        bool alike = l->outcome.n == 1; /* nothing asked for the layer: all are alike */
        if (alike) loop->group.item[0].layers.item[0].to = loop->count;
        if (alike || error_count() > before) break;
    }
    l->deciding = false;
    for (int k = 0; k < l->outer_names; k++)
        if (assigned[k]) PUSH(&loop->carried, k);
}

static bool make_carries(struct lower *l, struct loop *loop)
{
    bool fits = true;
    for (int k = 0; k < loop->carried.n; k++) {
        struct binding *b = &loop->before[loop->carried.item[k]];
        struct value *first = b->means.value;
        if (b->means.kind != MEANS_VALUE || first->type == I32) {
            if (b->means.kind != MEANS_NOTHING) {
                struct diagnostic *d =
                    complain(b->at,
                             "'%s' is assigned again inside a repeat, but %s cannot be carried "
                             "from layer to layer",
                             b->name, first && first->type == I32 ? "ids" : lower_kind(&b->means));
                add_note(d, l->repeat_at, "the repeat");
                add_help(d, "give the one inside another name");
            }
            fits = false;
            continue;
        }
        struct value *v = value_new(l->g, fresh_name(l->g, b->name), first->type, first->shape);
        PUSH(&loop->region->carry, ((struct carry){.value = v, .first = first}));
        b->means.value = v;
    }
    return fits;
}

/* The values that this body passes to the next iteration. */
static void hand_on(struct lower *l, struct loop *loop)
{
    for (int k = 0; k < loop->carried.n; k++) {
        const struct binding *b = &l->name.item[loop->carried.item[k]];
        const struct value *want = loop->region->carry.item[k].value;
        struct value *v = b->means.value;
        bool fits = b->means.kind == MEANS_VALUE && v->type == want->type &&
                    shape_same(v->shape, want->shape);
        if (!fits && b->means.kind != MEANS_NOTHING) {
            struct diagnostic *d =
                complain(b->latest, "'%s' is carried from layer to layer as %s, but this is %s",
                         b->name, shape_text(want->shape),
                         b->means.kind == MEANS_VALUE && shape_same(v->shape, want->shape)
                             ? text_format("%s where %s is carried", element_names[v->type],
                                           element_names[want->type])
                             : lower_kind(&b->means));
            add_note(d, b->at, "what the first layer gets");
        }
        PUSH(&l->b.body->next, fits ? v : loop->region->carry.item[k].value);
    }
}

static void build_body(struct lower *l, struct loop *loop, const struct group *g)
{
    bool only = loop->group.n == 1;
    restore(l, loop);
    l->b.body = body_new(loop->region, only ? "" : g->name);
    for (int i = 0; i < g->layers.n && !only; i++) PUSH(&l->b.body->layers, g->layers.item[i]);
    l->unit = only ? intern(loop->name) : intern_format("%s.%s", loop->name, g->name);
    l->i = g->layers.item[0].from;
    l->outcome.n = 0;
    lower_items(l, loop->block->kid[1]);
    hand_on(l, loop);
}

/* The layers of a repeat are gathered in turn, each with what its kind has: a kind with nothing has
 * no turn. */
static void check_kinds(struct lower *l, const struct loop *loop)
{
    const struct declared_weight *first = NULL;
    int kinds = 0;
    for (int i = 0; i < loop->region->body.n; i++) {
        const struct declared_weight *found = NULL;
        for (int k = 0; k < l->declared.n && !found; k++)
            if (l->declared.item[k].body == loop->region->body.item[i])
                found = &l->declared.item[k];
        kinds += found != NULL;
        if (!first) first = found;
    }
    if (!kinds || kinds == loop->region->body.n) return;
    struct diagnostic *d =
        complain(l->repeat_at, "some layers of this repeat have weights and others have none");
    add_note(d, first->at, "a weight that not all of them have");
    add_help(d, "give every layer a weight, or put layers without weights outside the repeat");
}

void lower_repeat(struct lower *l, const struct ast *block)
{
    struct loop loop = {.block = block};
    if (!read_head(l, &loop)) return;
    if (l->repeats++) lower_straight_again(l);
    l->in_repeat = true;
    l->repeat_at = block->kid[0]->at;
    l->numberless = false;
    l->prefix = block->kid[0]->kid[2]->text;
    l->outer_names = l->name.n;
    loop.before = TAKE_MANY(struct binding, l->name.n + 1);
    for (int i = 0; i < l->name.n; i++) {
        loop.before[i] = l->name.item[i];
        loop.before[i].assigned = false;
    }
    decide(l, &loop);

    l->b.region = loop.region = region_new(l->g, text_format("%s.forward", loop.name), PHASE_MICRO,
                                           UP, loop.count, loop.name);
    bool fits = make_carries(l, &loop);
    for (int i = 0; fits && i < loop.group.n; i++) {
        build_body(l, &loop, &loop.group.item[i]);
        for (int k = l->outer_names; k < l->name.n; k++) PUSH(&l->gone, l->name.item[k]);
    }

    if (fits) check_kinds(l, &loop);
    restore(l, &loop);
    for (int k = 0; fits && k < loop.carried.n; k++) {
        struct carry *c = &loop.region->carry.item[k];
        c->last =
            value_new(l->g, fresh_name(l->g, c->value->name), c->value->type, c->value->shape);
        l->name.item[loop.carried.item[k]].means = lower_value(c->last);
    }
    if (!fits)
        for (int k = 0; k < loop.carried.n; k++)
            l->name.item[loop.carried.item[k]].means = lower_nothing();
    l->in_repeat = false;
    lower_straight(l, "epilogue");
}
