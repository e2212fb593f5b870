/* Addresses. The bytes of a value are in the buffer of its name: a single entry, one entry per
 * layer ("i"), or a ring ("n", "n+1"). A weight is in the gathered slot of its unit or, if nothing
 * is gathered, in the master weights. Everything that depends on a size becomes a named constant,
 * so the calls read the same for any number of layers. */
#include "emit/place.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

static const char *place_upper(const char *name)
{
    struct text t = {0};
    if (!isalpha((unsigned char)name[0])) text_add(&t, "V_");
    for (const char *c = name; *c; c++)
        text_add(&t, "%c", isalnum((unsigned char)*c) ? toupper((unsigned char)*c) : '_');
    return intern(t.bytes);
}

const char *place_constant(struct places *p, const char *key, const char *stem, int64_t value,
                           const char *note)
{
    key = intern(key);
    for (int i = 0; i < p->constant.n; i++)
        if (p->constant.item[i].key == key) return p->constant.item[i].name;
    const char *name = place_upper(stem);
    for (bool fresh = false; !fresh;) {
        fresh = strcmp(name, "EOF") && strcmp(name, "NULL") && strcmp(name, "MICRO_FIRST") &&
                strcmp(name, "MICRO_LAST") && strcmp(name, "MICRO_FORWARD");
        for (int i = 0; i < p->constant.n && fresh; i++) fresh = p->constant.item[i].name != name;
        if (!fresh) name = intern_format("%s_", name);
    }
    PUSH(&p->constant, ((struct constant_of){key, name, note, value}));
    return name;
}

struct here here_of(const struct region *r, const struct body *b)
{
    return (struct here){r, b, "i", r->direction == UP ? "i" : r->direction == DOWN ? "n" : "0"};
}

/* ── units ───────────────────────────────────────────────────────────────────── */
const struct unit *place_find_unit(const struct graph *g, const char *name)
{
    const struct unit *u = graph_unit(g, name);
    for (int i = 0; i < g->unit.n && !u; i++)
        if (g->unit.item[i]->loop[0] && !strcmp(g->unit.item[i]->loop, name)) u = g->unit.item[i];
    if (!u) bug("no unit %s", name);
    return u;
}

bool place_has_variants(const struct graph *g, const char *loop)
{
    int n = 0;
    for (int i = 0; i < g->unit.n; i++) n += loop[0] && !strcmp(g->unit.item[i]->loop, loop);
    return n > 1;
}

const char *place_unit(struct places *p, const struct unit *u)
{
    int64_t first = 0;
    for (int i = 0; p->graph->unit.item[i] != u; i++) first += p->graph->unit.item[i]->count;
    return place_constant(p, text_format("unit %s", u->name), text_format("unit.%s", u->name),
                          first, "number of its first instance");
}

const char *place_instance(struct places *p, const struct unit *u, const char *index)
{
    if (!u->loop[0]) return "0";
    return place_has_variants(p->graph, u->loop) && !p->by_unit
               ? text_format("%s_place[%s]", emit_identifier(u->loop), index)
               : index;
}

/* ── buffers ─────────────────────────────────────────────────────────────────── */
static const char *segment_verb(const struct buffer *b)
{
    return b->segment == SEGMENT_WIRE ? "wire" : "local";
}

static const struct buffer *buffer_of(const struct places *p, const char *name)
{
    return graph_buffer_must(p->graph, name);
}

const char *place_slot_name(const char *buffer)
{
    const char *first = strchr(buffer, '.'), *last = strrchr(buffer, '.');
    if (!first || first == last) return buffer;
    size_t n = strlen(last + 1);
    bool twice = !strncmp(first + 1, last + 1, n) && (first[n + 1] == '.');
    return twice ? intern_bytes(buffer, (size_t)(last - buffer)) : buffer;
}

const char *place_entry(const char *base, const char *entry, int64_t ring, const char *each)
{
    char *end;
    int64_t number = strtol(entry, &end, 10);
    if (*end && ring > 1)
        return each ? text_format("%s + %s %% %ld * %s", base, entry, ring, each)
                    : text_format("%s + %s %% %ld", base, entry, ring);
    number = ring > 1 ? number % ring : 0;
    if (!number) return base;
    if (!each) return text_format("%s + %ld", base, number);
    return number == 1 ? text_format("%s + %s", base, each)
                       : text_format("%s + %ld * %s", base, number, each);
}

/* Under `stem`. */
static const char *offset_as(struct places *p, const struct buffer *b, const char *stem)
{
    struct text note = {0};
    text_add(&note, "%s",
             b->kind == BUFFER_ALIAS ? "in the bytes of another value"
                                     : buffer_kind_names[b->kind]);
    if (b->kind != BUFFER_ALIAS && b->entries > 1) text_add(&note, ", %ld of", b->entries);
    if (b->kind != BUFFER_ALIAS)
        text_add(&note, "%s %ld bytes", b->entries > 1 ? "" : ",", b->bytes);
    text_add(&note, ", steps %d to %d", b->live_from, b->live_to);
    return place_constant(p, text_format("at %s", b->name), stem, b->offset, note.bytes);
}

static const char *offset_of(struct places *p, const struct buffer *b)
{
    return offset_as(p, b, b->name);
}

static const char *stride_of(struct places *p, const struct buffer *b, const char *at)
{
    return place_constant(p, text_format("stride %s", b->name), text_format("%s.stride", at),
                          b->stride, NULL);
}

const char *place_plain(struct places *p, const char *buffer)
{
    const struct buffer *b = buffer_of(p, buffer);
    return text_format("%s(d, %s)", segment_verb(b), offset_of(p, b));
}

const char *place_slot(struct places *p, const char *buffer, const struct unit *u,
                       const char *entry, int64_t ring)
{
    const struct buffer *b = buffer_of(p, buffer);
    const char *at = offset_as(p, b, place_slot_name(buffer));
    if (!u->loop[0]) return text_format("%s(d, %s)", segment_verb(b), at);
    return text_format("%s(d, %s)", segment_verb(b),
                       place_entry(at, entry, ring, ring > 1 ? stride_of(p, b, at) : NULL));
}

const char *place_state(struct places *p, enum buffer_kind kind, const struct unit *u,
                        const char *instance)
{
    const struct facts *f = &p->graph->facts;
    const struct buffer *b = buffer_of(p, state_name(kind));
    /* a shard, of which the rank's part comes first; all else is as long as the part */
    const bool whole = kind == BUFFER_GRADIENT && f->parts > 1 && gradients_whole(f);
    const char *what = whole ? "gradient" : "shard";
    const char *at = place_constant(
        p, text_format("%s %s", what, u->name), text_format("%s.%s", u->name, what),
        4 * (whole ? u->shard_offset : u->state_offset), "from the start of each kind of state");
    const char *bytes =
        !u->loop[0]
            ? NULL
            : place_constant(p, text_format("%s bytes %s", what, u->name),
                             text_format("%s.%s.bytes", u->name, what),
                             4 * (whole ? u->shard_elements : u->part_elements), "one instance's");
    const char *base = offset_of(p, b);
    if (!u->loop[0]) return text_format("%s(d, %s + %s)", segment_verb(b), base, at);
    return text_format("%s(d, %s + %s + %s * %s)", segment_verb(b), base, at,
                       place_instance(p, u, instance), bytes);
}

/* Weights and their gradients lie in slots of one layout. */
static const char *in_unit(struct places *p, const struct weight *w, int64_t size)
{
    int64_t unit = element_bytes(p->graph->facts.compute);
    const char *at =
        place_constant(p, text_format("weight %s", w->value->name),
                       text_format("%s.at", w->value->name), w->offset * unit, w->tensor);
    return size == unit ? at : text_format("%ld * %s", size / unit, at);
}

static struct address place_weight(struct places *p, struct here h, const struct weight *w)
{
    const struct graph *g = p->graph;
    const struct unit *u = graph_unit(g, w->unit);
    const char *name = slot_name(SLOT_GATHER, h.region->name, u);
    const struct buffer *slot = graph_buffer(g, name);
    struct address a = {.name = w->value->name, .base = text_format("%s.weights", u->name)};
    const char *entry = slot && slot->index == INDEX_LAYER ? h.index : h.running;
    a.base_address = slot ? place_slot(p, name, u, entry, slot->entries)
                          : place_state(p, BUFFER_MASTER, u, h.index);
    a.at = in_unit(p, w, slot ? element_bytes(g->facts.compute) : 4);
    return a;
}

static struct address place_gradient(struct places *p, struct here h, const struct weight *w)
{
    const struct unit *u = graph_unit(p->graph, w->unit);
    const char *name = slot_name(SLOT_GRADIENT, h.region->name, u);
    return (struct address){.name = text_format("grad.%s", w->value->name),
                            .base = text_format("%s.gradients", u->name),
                            .base_address =
                                place_slot(p, name, u, h.running, buffer_of(p, name)->entries),
                            .at = in_unit(p, w, 4)};
}

struct address place_value(struct places *p, struct here h, const struct value *v)
{
    const struct value *root = emit_root(v);
    if (root->weight) return place_weight(p, h, root->weight);
    for (int i = 0; i < h.body->gradient.n; i++)
        if (emit_root(h.body->gradient.item[i].value) == root)
            return place_gradient(p, h, h.body->gradient.item[i].weight->weight);
    const struct buffer *b = buffer_of(p, root->name);
    const char *at = offset_of(p, b), *entry = at;
    switch (b->index) {
    case INDEX_ONLY: break;
    case INDEX_LAYER: {
        /* a carry's stack has an entry for every iteration, variants or not */
        bool carried = false;
        for (int i = 0; i < p->graph->region.n; i++)
            for (int c = 0; c < p->graph->region.item[i]->carry.n; c++) {
                carried |= p->graph->region.item[i]->carry.item[c].value == root;
                for (int k = 0; k < p->graph->region.item[i]->body.n; k++)
                    carried |= p->graph->region.item[i]->body.item[k]->next.item[c] == root;
            }
        bool variants = !carried && place_has_variants(p->graph, h.region->loop);
        entry = text_format("%s + %s * %s", at,
                            variants ? text_format("%s_place[i]", emit_identifier(h.region->loop))
                                     : "i",
                            stride_of(p, b, at));
        break;
    }
    case INDEX_RING: entry = place_entry(at, h.running, b->entries, stride_of(p, b, at)); break;
    case INDEX_RING_NEXT:
        entry = place_entry(at, strcmp(h.running, "0") ? text_format("(%s + 1)", h.running) : "1",
                            b->entries, stride_of(p, b, at));
        break;
    }
    return (struct address){.name = root->name,
                            .at = text_format("%s(d, %s)", segment_verb(b), entry)};
}
