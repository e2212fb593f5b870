/* The IR as text. It is complete: a test can stop after any pass, edit the text, and continue
 * there. One node per line; numbers in the shortest form that reads back exactly; no addresses, no
 * hash order. ir_parse.c reads exactly this; docs/ir.md describes it. */
#include "base/escape.h"
#include "ir/ir.h"

#include <string.h>

static void print_type(struct text *to, const struct value *v)
{
    text_add(to, "%s:%s[", v->name, element_names[v->type]);
    for (int i = 0; i < v->shape.rank; i++)
        text_add(to, "%s%lld", i ? "," : "", (long long)v->shape.dim[i]);
    text_add(to, "]");
}

static void print_attr(struct text *to, const struct attr *a)
{
    switch (a->kind) {
    case ATTR_WHOLE: text_add(to, " %s=%lld", a->key, (long long)a->whole); break;
    case ATTR_REAL: {
        /* a whole real keeps its point, or it would read back as a whole */
        const char *x = text_number(a->real);
        text_add(to, " %s=%s%s", a->key, x, strpbrk(x, ".en") ? "" : ".0");
        break;
    }
    case ATTR_WORD: text_add(to, " %s=\"%s\"", a->key, escape_word(a->word)); break;
    }
}

static void print_place(struct text *to, const char *file, int line)
{
    if (file) text_add(to, " @%s:%d", escape_word(file), line);
}

static void print_node(struct text *to, const struct node *n)
{
    text_add(to, "    ");
    for (int i = 0; i < n->n_out; i++) {
        if (i) text_add(to, ", ");
        print_type(to, n->out[i]);
    }
    text_add(to, "%s%s(", n->n_out ? " = " : "", op_rows[n->op].name);
    for (int i = 0; i < n->n_in; i++)
        text_add(to, "%s%s", i ? ", " : "",
                 n->in[i].value ? n->in[i].value->name : text_number(n->in[i].number));
    text_add(to, ")");
    for (int i = 0; i < n->n_attr; i++) print_attr(to, &n->attr[i]);
    if (n->again) text_add(to, " again");
    if (n->kernel) text_add(to, " kernel %d", n->kernel);
    if (n->lane) text_add(to, " lane %s", lane_names[n->lane]);
    if (n->step) text_add(to, " step %d", n->step);
    print_place(to, n->file, n->line);
    text_add(to, "\n");
}

static void print_body(struct text *to, const struct region *r, const struct body *b)
{
    text_add(to, "  body \"%s\" keep=\"%s\"", b->name, checkpoint_names[b->keep]);
    if (b->keep == CHECKPOINT_SELECTIVE) text_add(to, " save=\"%s\"", escape_word(b->save));
    for (int i = 0; i < b->layers.n; i++)
        text_add(to, " %lld..%lld", (long long)b->layers.item[i].from,
                 (long long)b->layers.item[i].to);
    text_add(to, "\n");
    for (int i = 0; i < b->node.n; i++) print_node(to, b->node.item[i]);
    for (int i = 0; i < b->gradient.n; i++)
        text_add(to, "    gradient %s = %s\n", b->gradient.item[i].weight->name,
                 b->gradient.item[i].value->name);
    for (int i = 0; i < b->next.n; i++)
        text_add(to, "    next %s = %s\n", r->carry.item[i].value->name, b->next.item[i]->name);
}

static void print_region(struct text *to, const struct region *r)
{
    text_add(to, "region %s phase=%s run=%s count=%lld loop=\"%s\"", r->name, phase_names[r->phase],
             direction_names[r->direction], (long long)r->count, r->loop);
    if (r->mirror) text_add(to, " mirror=\"%s\"", r->mirror);
    if (r->within) text_add(to, " within=\"%s\"", r->within);
    text_add(to, "\n");
    for (int i = 0; i < r->carry.n; i++) {
        const struct carry *c = &r->carry.item[i];
        text_add(to, "  carry ");
        print_type(to, c->value);
        text_add(to, " first=%s last=%s\n", c->first->name, c->last->name);
    }
    for (int i = 0; i < r->body.n; i++) print_body(to, r, r->body.item[i]);
    text_add(to, "end\n");
}

static void print_facts(struct text *to, const struct facts *f)
{
    text_add(to,
             "facts sequence=%lld local=%lld tokens=%lld accumulation=%lld fsdp=%lld dp=%lld "
             "prefetch=%lld reduce_slots=%lld loss_chunks=%lld",
             (long long)f->sequence, (long long)f->local, (long long)f->tokens,
             (long long)f->accumulation, (long long)f->fsdp, (long long)f->dp,
             (long long)f->prefetch, (long long)f->reduce_slots, (long long)f->loss_chunks);
    text_add(to,
             " reshard=\"%s\" checkpoint=\"%s\" every=%lld layers=\"%s\" save=\"%s\" rest=\"%s\" "
             "rest_save=\"%s\" compute=\"%s\" fuse=%d has_ignore=%d ignore=%lld",
             reshard_names[f->reshard], checkpoint_names[f->checkpoint_mode],
             (long long)f->checkpoint_every, f->checkpoint_layers, f->checkpoint_save,
             checkpoint_names[f->checkpoint_rest], f->checkpoint_rest_save,
             element_names[f->compute], f->fuse, f->has_ignore, (long long)f->ignore);
    const struct {
        const char *key;
        double x;
    } real[] = {{"beta1", f->beta1}, {"beta2", f->beta2}, {"eps", f->eps}, {"clip", f->clip}};
    for (size_t i = 0; i < COUNT_OF(real); i++)
        print_attr(to, &(struct attr){.key = real[i].key, .kind = ATTR_REAL, .real = real[i].x});
    if (f->group_rates) text_add(to, " rates=1");
    if (f->apart) text_add(to, " apart=1");
    if (f->parts > 1) text_add(to, " parts=%lld", (long long)f->parts);
    if (f->device != DEVICE_CPU)
        text_add(to, " device=\"%s\"%s%s", device_names[f->device],
                 f->attention_library ? " attention=\"library\"" : "",
                 f->experts ? text_format(" experts=\"%s\"", experts_names[f->experts]) : "");
    if (f->wgmma) text_add(to, " wgmma=1");
    if (f->shared_bytes) text_add(to, " shared=%lld", (long long)f->shared_bytes);
    if (f->multiprocessors) text_add(to, " multiprocessors=%lld", (long long)f->multiprocessors);
    text_add(to, "\n");
}

void ir_print(struct text *to, const struct graph *g)
{
    text_add(to, "ir 1 after=\"%s\"\n", level_names[g->level]);
    print_facts(to, &g->facts);
    for (int i = 0; i < g->input.n; i++) {
        text_add(to, "input ");
        print_type(to, g->input.item[i]);
        text_add(to, "\n");
    }
    for (int i = 0; i < g->unit.n; i++) {
        const struct unit *u = g->unit.item[i];
        text_add(to, "unit %s loop=\"%s\" count=%lld variant=\"%s\"", u->name, u->loop,
                 (long long)u->count, u->variant);
        if (u->elements)
            text_add(to, " elements=%lld shard_elements=%lld state_offset=%lld",
                     (long long)u->elements, (long long)u->shard_elements,
                     (long long)u->state_offset);
        if (u->elements && g->facts.parts > 1)
            text_add(to, " part_elements=%lld shard_offset=%lld", (long long)u->part_elements,
                     (long long)u->shard_offset);
        text_add(to, "\n");
    }
    for (int i = 0; i < g->weight.n; i++) {
        const struct weight *w = g->weight.item[i];
        text_add(to, "weight ");
        print_type(to, w->value);
        text_add(to, " tensor=\"%s\" stack=%lld", escape_word(w->tensor), (long long)w->stack);
        if (w->beside) text_add(to, " beside=\"%s\"", escape_word(w->beside));
        text_add(to, " unit=\"%s\" init=\"%s\"", w->unit, weight_init_names[w->init]);
        print_attr(to, &(struct attr){.key = "std", .kind = ATTR_REAL, .real = w->std});
        text_add(to, " offset=%lld", (long long)w->offset);
        if (w->balances) {
            print_attr(to, &(struct attr){.key = "rate", .kind = ATTR_REAL, .real = w->rate});
            text_add(to, " choices=%lld", (long long)w->choices);
        }
        print_place(to, w->file, w->line);
        text_add(to, "\n");
    }
    for (int i = 0; i < g->region.n; i++) print_region(to, g->region.item[i]);
    for (int i = 0; i < g->kernel.n; i++) {
        const struct kernel *k = &g->kernel.item[i];
        text_add(to, "kernel %d name=\"%s\" class=\"%s\" rows=%lld columns=%lld", k->number,
                 k->name, kernel_class_name(k), (long long)k->rows, (long long)k->columns);
        print_attr(to, &(struct attr){.key = "flops", .kind = ATTR_REAL, .real = k->flops});
        print_attr(to, &(struct attr){.key = "bytes", .kind = ATTR_REAL, .real = k->bytes});
        text_add(to, "\n");
    }
    for (int i = 0; i < g->buffer.n; i++) {
        const struct buffer *b = g->buffer.item[i];
        text_add(to,
                 "buffer %s kind=\"%s\" segment=\"%s\" offset=%lld bytes=%lld entries=%lld "
                 "stride=%lld index=\"%s\" live_from=%d live_to=%d",
                 b->name, buffer_kind_names[b->kind], segment_names[b->segment],
                 (long long)b->offset, (long long)b->bytes, (long long)b->entries,
                 (long long)b->stride, buffer_index_names[b->index], b->live_from, b->live_to);
        if (b->idle_to)
            text_add(to, " idle=%lld idle_from=%d idle_to=%d", (long long)b->idle_entry,
                     b->idle_from, b->idle_to);
        text_add(to, b->over ? " over=\"%s\"\n" : "\n", b->over);
    }
    if (g->level >= LEVEL_SCHEDULE) text_add(to, "steps %d\n", g->steps);
    if (g->level >= LEVEL_MEMORY)
        text_add(to, "memory local=%lld wire=%lld\n", (long long)g->local_bytes,
                 (long long)g->wire_bytes);
}
