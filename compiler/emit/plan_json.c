/* plan.json: the plan with every default filled in, for people and for tools that compare runs.
 * Bytes and counts are whole numbers. Neither compiler nor trainer reads it. */
#include "base/escape.h"
#include "emit/common.h"

#include <string.h>

/* null, one string, or a list of them. */
static void strings(struct text *to, const char *const *item, int n)
{
    if (n > 1) text_add(to, "[");
    for (int i = 0; i < n; i++) {
        if (i) text_add(to, ", ");
        escape_json(to, item[i]);
    }
    if (n > 1) text_add(to, "]");
    if (!n) escape_json(to, NULL);
}

static void key(struct text *to, const char *name)
{
    escape_json(to, name);
    text_add(to, ": ");
}

static void model_and_cluster(struct text *to, const struct plan *p)
{
    text_add(to, "{\n  \"title\": ");
    escape_json(to, p->title);
    text_add(to, ",\n  \"plan\": ");
    escape_json(to, p->path);
    text_add(to, ",\n  \"model\": {\"architecture\": ");
    escape_json(to, p->architecture);
    for (int i = 0; i < p->n_hyper; i++) {
        text_add(to, ", ");
        key(to, p->hyper[i].name);
        constant_json(to, &p->hyper[i].value);
    }
    text_add(to, "},\n  \"cluster\": {\"name\": ");
    escape_json(to, p->cluster.name);
    text_add(to, ", \"nodes\": %ld, \"devices_per_node\": %ld, \"memory_bytes\": %ld},\n",
             p->cluster.nodes, p->cluster.devices_per_node, p->cluster.memory_bytes);
}

/* Mesh, precision, checkpointing, batch. */
static void how(struct text *to, const struct plan *p)
{
    text_add(to,
             "  \"mesh\": {\"fsdp\": %ld, \"dp\": %ld, \"prefetch\": %ld, \"reduce_slots\": "
             "%ld, \"reshard\": \"%s\", \"optimizer\": \"%s\"},\n",
             p->fsdp, p->dp, p->prefetch, p->reduce_slots, reshard_names[p->reshard],
             p->optimizer_all ? "all" : "shard");
    text_add(to,
             "  \"precision\": {\"compute\": \"%s\", \"master\": \"%s\", \"gradients\": \"%s\", "
             "\"moments\": \"%s\"},\n",
             element_names[p->compute], element_names[F32], element_names[F32], element_names[F32]);
    text_add(to, "  \"activation_checkpoint\": {\"mode\": \"%s\"},\n",
             checkpoint_names[p->checkpoint_mode]);
    text_add(to,
             "  \"batch\": {\"sequence\": %ld, \"local\": %ld, \"global\": %ld, "
             "\"accumulation\": %ld, \"loss_chunks\": %ld},\n",
             p->sequence, p->local, p->global, p->accumulation, p->loss_chunks);
}

/* Optimizer and schedule. */
static void recipe(struct text *to, const struct plan *p)
{
    static const char *const schedule[] = {[SCHEDULE_CONSTANT] = "constant",
                                           [SCHEDULE_COSINE] = "cosine",
                                           [SCHEDULE_LINEAR] = "linear",
                                           [SCHEDULE_WSD] = "wsd"};
    static const char *const shape[] = {
        [DECAY_LINEAR] = "linear", [DECAY_SQRT] = "sqrt", [DECAY_COSINE] = "cosine"};
    text_add(to,
             "  \"optimizer\": {\"name\": \"adamw\", \"lr\": %s, \"beta1\": %s, \"beta2\": %s, "
             "\"eps\": %s, \"weight_decay\": %s, \"clip\": %s, \"groups\": [",
             text_number(p->lr), text_number(p->beta1), text_number(p->beta2), text_number(p->eps),
             text_number(p->weight_decay), text_number(p->clip));
    for (int i = 0; i < p->n_groups; i++) {
        text_add(to, "%s{\"weights\": ", i ? ", " : "");
        escape_json(to, p->group[i].pattern);
        if (p->group[i].has_decay)
            text_add(to, ", \"weight_decay\": %s", text_number(p->group[i].weight_decay));
        if (p->group[i].has_scale)
            text_add(to, ", \"lr_scale\": %s", text_number(p->group[i].lr_scale));
        text_add(to, "}");
    }
    text_add(to, "]},\n");
    text_add(to,
             "  \"schedule\": {\"name\": \"%s\", \"warmup\": %ld, \"steps\": %ld, \"decay\": "
             "%ld, \"floor\": %s, \"warmup_from\": %s, \"warmup_to\": %s, \"decay_shape\": "
             "\"%s\"},\n",
             schedule[p->schedule], p->warmup, p->schedule_steps, p->decay, text_number(p->floor),
             text_number(p->warmup_from), text_number(p->warmup_to), shape[p->decay_shape]);
}

static void data(struct text *to, const struct plan *p)
{
    static const char *const format[] = {
        [DATA_BYTES] = "bytes",       [DATA_UINT16] = "uint16",  [DATA_UINT32] = "uint32",
        [DATA_MEGATRON] = "megatron", [DATA_NUMPY] = "npy",      [DATA_LLMC] = "llmc",
        [DATA_JSON_LINES] = "jsonl",  [DATA_RECOGNISED] = "auto"};
    text_add(to, "  \"data\": {\"train\": ");
    strings(to, p->data_train, p->n_data_train);
    if (p->n_sources) {
        text_add(to, ", \"sources\": [");
        for (int i = 0; i < p->n_sources; i++) {
            text_add(to, "%s{\"name\": ", i ? ", " : "");
            escape_json(to, p->source[i].name);
            text_add(to, ", \"files\": ");
            strings(to, p->source[i].files, p->source[i].n_files);
            text_add(to, ", \"shares\": [");
            for (int k = 0; k < p->n_stages; k++)
                text_add(to, "%s%ld", k ? ", " : "", p->source[i].share[k]);
            text_add(to, "]}");
        }
        text_add(to, "], \"stages\": [");
        for (int k = 0; k < p->n_stages; k++)
            text_add(to, "%s%ld", k ? ", " : "", p->stage_step[k]);
        text_add(to, "]");
    }
    if (p->n_data_validation) {
        text_add(to, ", \"validation\": ");
        strings(to, p->data_validation, p->n_data_validation);
        text_add(to, ", \"validate_every\": %ld, \"validate_steps\": %ld", p->validate_every,
                 p->validate_steps);
    }
    text_add(to, ", \"format\": \"%s\", \"order\": \"%s\", \"seed\": %ld, \"ignore\": %s",
             format[p->data_format], p->data_order == ORDER_SHUFFLED ? "shuffled" : "sequential",
             p->data_seed,
             p->has_ignore && p->ignore >= 0 ? text_format("%ld", p->ignore) : "null");
    if (p->separate)
        text_add(to, ", \"documents\": \"separate\", \"end_token\": %s",
                 p->end_token >= 0 ? text_format("%ld", p->end_token) : "null");
    text_add(to, "},\n");
}

/* The initial weights and the run. */
static void run(struct text *to, const struct plan *p)
{
    static const char *const attention_names[] = {
        [ATTENTION_PLANC] = "planc", [ATTENTION_CUDNN] = "cudnn", [ATTENTION_AUTO] = "auto"};
    text_add(to, "  \"init\": {\"seed\": %ld, \"from\": ", p->init_seed);
    escape_json(to, p->init_from);
    text_add(to,
             "},\n  \"run\": {\"steps\": %ld, \"timeout_seconds\": %s, \"nonfinite\": \"%s\", "
             "\"graph\": %s, \"gemm\": \"%s\", \"attention\": \"%s\", \"experts\": \"%s\", "
             "\"nccl\": %s, \"nccl_blocks\": %s},\n",
             p->run_steps, text_number(p->timeout_seconds),
             p->nonfinite == NONFINITE_SKIP ? "skip" : "stop", p->graph ? "true" : "false",
             p->gemm == GEMM_PLANC ? "planc" : "cublaslt", attention_names[p->attention],
             experts_names[p->experts], p->nccl ? "true" : "false",
             p->nccl_blocks ? text_format("%ld", p->nccl_blocks) : "null");
}

/* What the compiler has made of it. */
static void made(struct text *to, const struct graph *g)
{
    const struct facts *f = &g->facts;
    text_add(to,
             "  \"device\": \"%s\", \"fusion\": %s, \"kernels\": %d, \"schedule_steps\": %d, "
             "\"local_bytes\": %ld, \"wire_bytes\": %ld,\n",
             device_names[f->device], f->fuse ? "true" : "false", g->kernel.n, g->steps,
             g->local_bytes, g->wire_bytes);
    text_add(to, "  \"units\": [");
    for (int i = 0; i < g->unit.n; i++) {
        text_add(to, "%s\n    {\"name\": ", i ? "," : "");
        escape_json(to, g->unit.item[i]->name);
        text_add(to, ", \"instances\": %ld, \"elements\": %ld, \"shard_elements\": %ld}",
                 g->unit.item[i]->count, g->unit.item[i]->elements,
                 g->unit.item[i]->shard_elements);
    }
    text_add(to, "\n  ]\n}\n");
}

void emit_plan_json(struct text *to, const struct graph *g, const struct plan *p)
{
    model_and_cluster(to, p);
    how(to, p);
    recipe(to, p);
    data(to, p);
    run(to, p);
    made(to, g);
}
