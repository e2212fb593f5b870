/* The tables from which a trainer says what its kernels are and what was predicted of them. */
#include "commands/predicted.h"
#include "base/escape.h"
#include "ir/cost.h"
#include "predict/prediction.h"

static void add_number(struct text *t, const char *key, double x)
{
    if (x > 0) text_add(t, ", \"%s\": %s", key, text_number(x));
}

/* The shape of a kernel as members of a JSON object. */
static const char *work_text(const struct machine *m, const struct work *w)
{
    static const char *const orders[] = {"any", "nn", "nt", "tn", "tt"};
    struct text t = {0};
    text_add(&t, "\"class\": \"%s\", \"engine\": \"%s\", \"type\": \"%s\"",
             cost_class_names[w->class], m->engine[w->class],
             w->type == BF16 && !w->mixed ? "bf16" : "fp32");
    if (w->order != ORDER_ANY) text_add(&t, ", \"order\": \"%s\"", orders[w->order]);
    if (w->mixed) text_add(&t, ", \"mixed\": true");
    if (w->weight_gradient) text_add(&t, ", \"weight_gradient\": true");
    if (w->library) text_add(&t, ", \"library\": true");
    add_number(&t, "m", w->m);
    add_number(&t, "n", w->n);
    add_number(&t, "k", w->k);
    add_number(&t, "rows", w->rows);
    add_number(&t, "experts", w->experts);
    add_number(&t, "heads", w->heads);
    add_number(&t, "width", w->width);
    add_number(&t, "sequence", w->sequence);
    add_number(&t, "columns", w->columns);
    add_number(&t, "flops", w->flops);
    add_number(&t, "bytes", w->bytes);
    text_add(&t, ", \"ops\": [");
    for (int i = 0; i < w->ops; i++)
        text_add(&t, "%s[\"%s\", %s]", i ? ", " : "", op_rows[w->op[i].op].name,
                 text_number(w->op[i].elements));
    text_add(&t, "]");
    return t.bytes;
}

const char *predicted_tables(const struct plan *p, const struct graph *g)
{
    struct machine m = machine_of(p);
    enum cost_class *class = cost_of_kernels(g);
    bool *done = TAKE_MANY(bool, g->kernel.n + 1), here = p->device == p->cluster.kind;
    struct program *program = NULL;
    struct prediction *whole = here ? predict(p, g, &program) : NULL;
    struct text t = {0};
    int rows = 0;
    text_add(&t, "\n/* name, what the prediction knows of it, predicted seconds of a call */\n"
                 "static const struct predicted_kernel predicted_kernels[] = {\n");
    for (int i = 0; i < g->region.n; i++)
        for (int b = 0; b < g->region.item[i]->body.n; b++) {
            const struct body *body = g->region.item[i]->body.item[b];
            for (int k = 0; k < body->node.n; k++) {
                int number = body->node.item[k]->kernel;
                if (!number || done[number]) continue;
                done[number] = true;
                struct work w = work_of_kernel(g, body, k, class[number]);
                struct kernel_time time = kernel_time(&m, &w);
                text_add(&t, "    {%s, %s, %s},\n", escape_c(w.name), escape_c(work_text(&m, &w)),
                         text_number(here && !time.missing
                                         ? (double)time.picoseconds[ALONE] / PICOSECONDS
                                         : 0));
                rows++;
            }
        }
    text_add(
        &t,
        "    {0, 0, 0}};\nconst struct predicted predicted = {.cluster = %s, .device = %s, .arch = "
        "%s,\n    .step_seconds = %s, .kernel = predicted_kernels, .kernels = %d};\n",
        escape_c(p->cluster.name), escape_c(p->cluster.device_name ? p->cluster.device_name : ""),
        escape_c(p->cluster.arch ? p->cluster.arch : ""),
        text_number(whole ? (double)whole->step / PICOSECONDS : 0), rows);
    return t.bytes;
}
