/* program.c: everything else that the trainer must know, as tables of numbers and names, so that
 * nothing of a plan is parsed when a trainer starts: units and their tensors, the names of steps
 * for the watchdog and the trace, where state is, and the recipe. What a rank does is in
 * schedule.c. */
#include "base/escape.h"
#include "ir/cost.h"
#include "emit/place.h"

#include <string.h>

static double decay_of(const struct plan *p, const struct weight *w, const char *tensor)
{
    return w->balances ? 0
                       : plan_weight_decay(p, tensor, w->value->shape.rank - (w->stack ? 1 : 0));
}

static const char *init_of(const struct weight *w)
{
    switch (w->init) {
    case WEIGHT_NORMAL: return "INIT_NORMAL";
    case WEIGHT_ONES: return "INIT_ONES";
    case WEIGHT_ZEROS: return "INIT_ZEROS";
    }
    bug("init %d", (int)w->init);
}

/* ── units ───────────────────────────────────────────────────────────────────── */
static const struct body *variant_body(const struct graph *g, const struct unit *u,
                                       const struct region **of)
{
    for (int i = 0; i < g->region.n; i++)
        for (int k = 0; k < g->region.item[i]->body.n && g->region.item[i]->body.n > 1; k++)
            if (!strcmp(g->region.item[i]->loop, u->loop) &&
                !strcmp(g->region.item[i]->body.item[k]->name, u->variant)) {
                *of = g->region.item[i];
                return g->region.item[i]->body.item[k];
            }
    return NULL;
}

/* The row of a weight's stored tensors; of two that are one weight, the first or the second. */
static void tensor_row(struct text *to, const struct graph *g, const struct plan *p,
                       const struct weight *w, bool second)
{
    const struct shape stored = weight_shape(w), *s = &stored;
    const char *tensor = second ? w->beside : w->tensor;
    const int rows = w->beside ? s->rank - 2 : -1, halves = w->beside ? 2 : 1;
    const int64_t parts = w->stack ? w->stack : 1, count = shape_count(*s) / halves;
    text_add(to, "    {%s, %d, {", escape_c(tensor), s->rank);
    for (int j = 0; j < s->rank; j++)
        text_add(to, "%s%ld", j ? ", " : "", j == rows ? s->dim[j] / 2 : s->dim[j]);
    text_add(to, "}, %ld, %ld, %ld, %s, %s, %s, %s", w->stack,
             w->offset + (second ? count / parts : 0), count, init_of(w), text_number(w->std),
             text_number(decay_of(p, w, tensor)), text_number(plan_lr_scale(p, tensor)));
    if (w->beside && w->stack) text_add(to, ", %ld", shape_count(*s) / parts);
    if (w->balances)
        text_add(to, ", .balance_mean = %s, .balance_rate = %s",
                 text_number(weight_mean_load(g, w)), text_number(w->rate));
    text_add(to, "},\n");
}

static void unit_tables(struct text *to, const struct graph *g, const struct plan *p)
{
    for (int i = 0; i < g->unit.n; i++) {
        const struct unit *u = g->unit.item[i];
        text_add(to,
                 "/* %s: name, shape, parts of a stack, first element in the unit, elements, "
                 "initial values, decay, rate; of two that are one weight: from part to part */\n"
                 "static const struct tensor tensors_%d[] = {\n",
                 escape_comment(u->name), i);
        for (int k = 0; k < g->weight.n; k++) {
            const struct weight *w = g->weight.item[k];
            if (strcmp(w->unit, u->name)) continue;
            tensor_row(to, g, p, w, false);
            if (w->beside) tensor_row(to, g, p, w, true);
        }
        text_add(to, "};\n");
        const struct region *r = NULL;
        const struct body *b = place_has_variants(g, u->loop) ? variant_body(g, u, &r) : NULL;
        if (!b) continue;
        text_add(to, "static const int64_t layers_%d[] = {", i);
        bool first = true;
        for (int s = 0; s < b->layers.n; s++)
            for (int64_t at = b->layers.item[s].from; at < b->layers.item[s].to;
                 at++, first = false)
                text_add(to, "%s%ld", first ? "" : ", ", at);
        text_add(to, "};\n");
    }
    text_add(to, "/* name, instances, layers, elements, elements of a shard, first element of the "
                 "state, tensors */\n"
                 "static const struct unit units[] = {\n");
    for (int i = 0; i < g->unit.n; i++) {
        const struct unit *u = g->unit.item[i];
        const struct region *r = NULL;
        bool variant = place_has_variants(g, u->loop) && variant_body(g, u, &r);
        text_add(to,
                 "    {%s, %ld, %s, %ld, %ld, %ld, tensors_%d, sizeof tensors_%d / sizeof "
                 "*tensors_%d",
                 escape_c(u->name), u->count, variant ? text_format("layers_%d", i) : "0",
                 u->elements, u->shard_elements, u->state_offset, i, i, i);
        if (g->facts.parts > 1)
            text_add(to, ", .part = %ld, .shard_offset = %ld", u->part_elements, u->shard_offset);
        text_add(to, "},\n");
    }
    text_add(to, "};\n\n");
}

/* ── steps, metrics ──────────────────────────────────────────────────────────── */
static const char *what_of(const struct graph *g, const struct node *n)
{
    const struct kernel *k = graph_kernel(g, n->kernel);
    if (k) return k->name;
    if (n->op == OP_tap) return text_format("tap %s", attr_get_word(n, "name"));
    switch ((enum lane_op)n->op) {
    case LANE_OP_gather: return text_format("gather %s", attr_get_word(n, "unit"));
    case LANE_OP_reduce: return text_format("reduce %s", attr_get_word(n, "unit"));
    case LANE_OP_wait: return text_format("wait for event %ld", attr_get(n, "event"));
    case LANE_OP_batch: return "load the batch";
    case LANE_OP_sum_ranks: return text_format("sum %s", n->out[0]->name);
    case LANE_OP_use: break;
    }
    return op_rows[n->op].name;
}

/* The last step that the metrics of a micro-batch need: what is after it is backward alone. */
static int last_forward_step(const struct graph *g)
{
    int last = 0;
    for (struct node_walk at = {0}; next_node(g, &at);) {
        const struct node *node = at.node;
        if (at.region->phase == PHASE_MICRO && node->op == OP_metric && node->step > last)
            last = node->step;
    }
    return last;
}

/* Whether something up to step `last` waits for what this gather fetches: one that is issued ahead
 * of the backward part is not. */
static bool is_waited_for(const struct graph *g, const struct node *gather, int last)
{
    for (struct node_walk at = {0}; next_node(g, &at);) {
        const struct node *node = at.node;
        if (node->op == OP_wait && node->step <= last &&
            attr_get(node, "event") == attr_get(gather, "event"))
            return true;
    }
    return false;
}

static void step_table(struct text *to, const struct graph *g)
{
    text_add(
        to,
        "/* What each step of schedule.c is called by the watchdog and the trace, and whether a\n"
        " * validation needs it. */\n"
        "static const struct step_name steps[] = {\n    {0, 0, false},\n");
    const int forward = last_forward_step(g);
    int last = 0;
    for (int i = 0; i < g->region.n; i++)
        for (int k = 0; k < g->region.item[i]->body.n; k++) {
            const struct body *b = g->region.item[i]->body.item[k];
            for (int n = 0; n < b->node.n; n++) {
                if (b->node.item[n]->step <= last) continue;
                if (b->node.item[n]->step != last + 1)
                    bug("step %d follows step %d", b->node.item[n]->step, last);
                last = b->node.item[n]->step;
                const bool is_forward =
                    last <= forward && (b->node.item[n]->op != OP_gather ||
                                        is_waited_for(g, b->node.item[n], forward));
                text_add(to, "    {%s, %s, %s},\n", escape_c(g->region.item[i]->name),
                         escape_c(what_of(g, b->node.item[n])), is_forward ? "true" : "false");
            }
        }
    text_add(to, "};\n\n");
}

static int metric_table(struct text *to, const struct graph *g)
{
    int n = 0;
    text_add(to, "/* name, numbers, offset in the arena */\n"
                 "static const struct metric metrics[] = {\n");
    for (int pass = 0; pass < 2; pass++)
        for (int i = 0; i < g->buffer.n; i++) {
            const struct buffer *b = g->buffer.item[i];
            if (b->kind != BUFFER_METRICS || !strcmp(b->name, "metric.loss") != !pass) continue;
            text_add(to, "    {%s, %ld, %ld},\n", escape_c(b->name + 7), b->bytes / 8, b->offset);
            n++;
        }
    text_add(to, "};\n\n");
    return n;
}

/* ── numbers read off the graph ──────────────────────────────────────────────── */
static int64_t events_of(const struct graph *g)
{
    int64_t n = 0;
    for (struct node_walk at = {0}; next_node(g, &at);) {
        const struct node *node = at.node;
        if (!attr_find(node, "event")) continue;
        int64_t end = attr_get(node, "event") + attr_or(node, "ring", 1),
                summed = attr_or(node, "summed", -1) +
                         (attr_find(node, "shards") ? attr_get(node, "ring") : 1);
        if (end > n) n = end;
        if (summed > n) n = summed;
    }
    return n;
}

/* Rows of the table that token ids are looked up in. */
static int64_t vocabulary_of(const struct graph *g)
{
    for (struct node_walk at = {0}; next_node(g, &at);) {
        const struct node *n = at.node;
        if (n->op == OP_embedding && n->in[0].value == g->input.item[0])
            return n->in[1].value->shape.dim[0];
    }
    return 0;
}

/* What attention costs, where that depends on the ends of documents. */
static int pair_table(struct text *to, const struct graph *g, double *others)
{
    struct pair_flops pair[COST_PAIRS];
    int n = cost_pairs(g, pair, others);
    if (!n) return 0;
    text_add(to, "static const struct pair_flops pairs[] = {");
    for (int i = 0; i < n; i++)
        text_add(to, "%s{%ld, %.17g}", i ? ", " : "", pair[i].window, pair[i].flops);
    text_add(to, "};\n");
    return n;
}

static int64_t state_offset(const struct graph *g, enum buffer_kind kind)
{
    return graph_buffer_must(g, state_name(kind))->offset;
}

static int64_t string_table(struct text *to, const char *name, const char *const *item, int n)
{
    if (!n) return 0;
    text_add(to, "static const char *const %s[] = {", name);
    for (int i = 0; i < n; i++) text_add(to, "%s%s", i ? ", " : "", escape_c(item[i]));
    text_add(to, "};\n");
    return n;
}

/* What the compiler was told it may use, asked of the compiler itself. */
static void feature_table(struct text *to)
{
    static const struct {
        const char *macro, *feature;
    } row[] = {{"__SSE4_2__", "sse4_2"},     {"__AVX__", "avx"},
               {"__AVX2__", "avx2"},         {"__FMA__", "fma"},
               {"__BMI2__", "bmi2"},         {"__AVX512F__", "avx512f"},
               {"__AVX512BW__", "avx512bw"}, {"__AVX512DQ__", "avx512dq"},
               {"__AVX512VL__", "avx512vl"}, {"__AVX512BF16__", "avx512_bf16"}};
    text_add(to, "static const char *const features[] = {\n");
    for (size_t i = 0; i < COUNT_OF(row); i++)
        text_add(to, "#ifdef %s\n    \"%s\",\n#endif\n", row[i].macro, row[i].feature);
    text_add(to, "    0};\n\n");
}

/* ── enumerators of runtime/shared/program.h ─────────────────────────────────── */
static const char *rate_of(enum schedule_kind schedule)
{
    switch (schedule) {
    case SCHEDULE_CONSTANT: return "RATE_CONSTANT";
    case SCHEDULE_COSINE: return "RATE_COSINE";
    case SCHEDULE_LINEAR: return "RATE_LINEAR";
    case SCHEDULE_WSD: return "RATE_WSD";
    }
    bug("schedule %d", (int)schedule);
}

static const char *format_of(enum data_format format)
{
    switch (format) {
    case DATA_BYTES: return "FORMAT_BYTES";
    case DATA_UINT16: return "FORMAT_UINT16";
    case DATA_UINT32: return "FORMAT_UINT32";
    case DATA_MEGATRON: return "FORMAT_MEGATRON";
    case DATA_NUMPY: return "FORMAT_NUMPY";
    case DATA_LLMC: return "FORMAT_LLMC";
    case DATA_JSON_LINES: return "FORMAT_JSON_LINES";
    case DATA_RECOGNISED: return "FORMAT_RECOGNISED";
    }
    bug("data format %d", (int)format);
}

/* What only a cuda trainer asks for; the cluster's rates are those of its own devices. */
static void cuda_numbers(struct text *to, const struct graph *g, const struct plan *p)
{
    const struct buffer *work = graph_buffer(g, "workspace");
    double peak = p->cluster.kind != DEVICE_CUDA ? 0
                  : p->compute == BF16           ? p->cluster.flops_bf16
                                                 : p->cluster.flops_fp32;
    text_add(to, "    .workspace = %ld, .workspace_bytes = %ld,\n", work ? work->offset : 0,
             work ? work->bytes : 0);
    text_add(to,
             "    .nccl = %s, .nccl_blocks = %ld, .graph = %s, .gemm = %s, .attention = %s, "
             ".experts = %s, "
             ".attention_auto = %s,\n    .experts_auto = %s, .peak_flops = %s, "
             ".outside_bytes = %ld,\n",
             p->nccl ? "true" : "false", p->nccl_blocks, p->graph ? "true" : "false",
             p->gemm == GEMM_CUBLASLT ? "ENGINE_CUBLASLT" : "ENGINE_PLANC",
             g->facts.attention_library ? "ENGINE_CUDNN" : "ENGINE_PLANC",
             g->facts.experts == EXPERTS_CUDNN      ? "ENGINE_CUDNN"
             : g->facts.experts == EXPERTS_CUBLASLT ? "ENGINE_CUBLASLT"
                                                    : "ENGINE_PLANC",
             p->attention == ATTENTION_AUTO ? "true" : "false",
             p->experts == EXPERTS_AUTO ? "true" : "false", text_number(peak),
             p->cluster.outside_bytes);
}

/* What a checkpoint keeps of the plan, and what is compared with it. */
static int key_table(struct text *to, const struct plan *p)
{
    resolved_keys all = plan_keys(p);
    text_add(to, "/* The resolved plan: path, value, whether it changes the mathematics. */\n"
                 "static const struct plan_key keys[] = {\n");
    for (int i = 0; i < all.n; i++)
        text_add(to, "    {%s, %s, %s},\n", escape_c(all.item[i].path), escape_c(all.item[i].json),
                 all.item[i].mathematics ? "true" : "false");
    text_add(to, "};\n\n");
    return all.n;
}

/* "1000..1011 2000..2001" as rows; how many. */
static int skip_table(struct text *to, const char *stretches)
{
    long long from, behind;
    int n = 0, used;
    for (const char *at = stretches; sscanf(at, "%lld..%lld%n", &from, &behind, &used) == 2;
         at += used, n++)
        text_add(to, "%s{%lld, %lld}", n ? ", " : "static const int64_t skipped[][2] = {", from,
                 behind);
    if (n) text_add(to, "};\n");
    return n;
}

static void saving_numbers(struct text *to, const struct plan *p)
{
    const struct saving *s = &p->saving;
    text_add(to,
             "    .saving = {.given = %s, .directory = %s, .every_steps = %ld, .every_seconds = "
             "%s, .keep = %ld, .keep_every = %ld, .async = %s},\n",
             s->given ? "true" : "false", escape_c(s->directory), s->every_steps,
             text_number(s->every_seconds), s->keep, s->keep_every, s->async ? "true" : "false");
}

static void numbers(struct text *to, const char *name, const int64_t *item, int n)
{
    text_add(to, "static const int64_t %s[] = {", name);
    for (int i = 0; i < n; i++) text_add(to, "%s%ld", i ? ", " : "", item[i]);
    text_add(to, "};\n");
}

/* The sources of a mixture, and the steps with which its stages begin. */
static void source_tables(struct text *to, const struct plan *p)
{
    if (!p->n_sources) return;
    for (int i = 0; i < p->n_sources; i++) {
        string_table(to, text_format("files_%d", i), p->source[i].files, p->source[i].n_files);
        numbers(to, text_format("shares_%d", i), p->source[i].share, p->n_stages);
    }
    text_add(to, "static const struct data_source sources[] = {\n");
    for (int i = 0; i < p->n_sources; i++)
        text_add(to, "    {%s, files_%d, %d, shares_%d},\n", escape_c(p->source[i].name), i,
                 p->source[i].n_files, i);
    text_add(to, "};\n");
    numbers(to, "stages", p->stage_step, p->n_stages);
}

static const char *fall_of(enum decay_shape s)
{
    switch (s) {
    case DECAY_LINEAR: return "SHAPE_LINEAR";
    case DECAY_SQRT: return "SHAPE_SQRT";
    case DECAY_COSINE: return "SHAPE_COSINE";
    }
    return "";
}

void emit_program_c(struct text *to, const struct graph *g, const struct plan *p,
                    enum emit_device device)
{
    const struct facts *f = &g->facts;
    text_add(to,
             "/* The tables of this trainer: %s\n * Generated by planc; the same plan gives the "
             "same bytes. */\n#include \"program.h\"\n\n",
             escape_comment(p->title ? p->title : p->architecture));
    unit_tables(to, g, p);
    step_table(to, g);
    int metrics = metric_table(to, g);
    string_table(to, "trains", p->data_train, p->n_data_train);
    string_table(to, "validations", p->data_validation, p->n_data_validation);
    source_tables(to, p);
    bool prefixes = string_table(to, "prefixes", p->stored_prefix, p->n_stored_prefix),
         ignored = string_table(to, "ignored", p->stored_ignore, p->n_stored_ignore);
    int keys = key_table(to, p), skips = skip_table(to, p->skip_batches);
    feature_table(to);
    double others = 0;
    int pairs = p->separate ? pair_table(to, g, &others) : 0;
    const struct buffer *io = graph_buffer(g, "io");
    text_add(to, "const struct program program = {\n");
    text_add(to, "    .title = %s, .plan_path = %s, .device = \"%s\",\n",
             escape_c(printable_text(p->title ? p->title : p->architecture)),
             escape_c(printable_text(p->path)),
             device == EMIT_CPU    ? "cpu"
             : device == EMIT_CUDA ? "cuda"
                                   : "trace");
    text_add(to,
             "    .fsdp = %ld, .dp = %ld, .accumulation = %ld, .local = %ld, .sequence = %ld, "
             ".global = %ld, .tokens = %ld,\n",
             f->fsdp, f->dp, f->accumulation, f->local, f->sequence, p->global, f->tokens);
    text_add(to, "    .parameters = %ld, .vocabulary = %ld, .flops_per_token = %.0f,\n",
             cost_parameters(g), vocabulary_of(g), cost_flops_per_token(g).full);
    text_add(to, "    .local_bytes = %ld, .wire_bytes = %ld,\n", g->local_bytes, g->wire_bytes);
    text_add(to,
             "    .master = %ld, .gradient = %ld, .moment1 = %ld, .moment2 = %ld, .scalars = "
             "%ld,\n",
             state_offset(g, BUFFER_MASTER), state_offset(g, BUFFER_GRADIENT),
             state_offset(g, BUFFER_MOMENT1), state_offset(g, BUFFER_MOMENT2),
             graph_buffer_must(g, "scalars")->offset);
    if (f->parts > 1)
        text_add(to, "    .parts = %ld, .weights = %ld, .gradients_whole = %s,\n", f->parts,
                 state_offset(g, BUFFER_WEIGHTS), gradients_whole(f) ? "true" : "false");
    text_add(to, "    .staging = %ld, .staging_bytes = %ld, .compute_type = %s,\n",
             io ? io->offset : 0, io ? io->bytes : 0,
             f->compute == BF16 ? "TYPE_BF16" : "TYPE_F32");
    text_add(to,
             "    .unit = units, .units = %d, .metric = metrics, .metrics = %d, .step = steps, "
             ".steps = %d, .events = %ld,\n",
             g->unit.n, metrics, g->steps, events_of(g));
    text_add(to,
             "    .lr = %s, .beta1 = %s, .beta2 = %s, .schedule = %s, .warmup = %ld, "
             ".schedule_steps = %ld, .decay = %ld, .floor = %s,\n    .warmup_from = %s, "
             ".warmup_to = %s, .decay_shape = %s,\n",
             text_number(p->lr), text_number(p->beta1), text_number(p->beta2), rate_of(p->schedule),
             p->warmup, p->schedule_steps, p->decay, text_number(p->floor),
             text_number(p->warmup_from), text_number(p->warmup_to), fall_of(p->decay_shape));
    text_add(to, "    .run_steps = %ld,\n", p->run_steps);
    text_add(to,
             "    .data_train = %s, .data_trains = %d, .data_format = %s, .data_order = %s, "
             ".data_seed = %ld, .has_ignore = %s, .ignore = %ld, .data_field = %s,\n",
             p->n_data_train ? "trains" : "0", p->n_data_train, format_of(p->data_format),
             p->data_order == ORDER_SHUFFLED ? "ORDER_SHUFFLED" : "ORDER_SEQUENTIAL", p->data_seed,
             p->has_ignore ? "true" : "false", p->ignore, escape_c(p->data_field));
    if (p->separate)
        text_add(to,
                 "    .separate = true, .end_token = %ld, .pair = %s, .pairs = %d, "
                 ".other_flops_per_token = %.17g,\n",
                 p->end_token, pairs ? "pairs" : "0", pairs, others);
    if (p->n_data_validation)
        text_add(to,
                 "    .data_validation = validations, .data_validations = %d, .validate_every = "
                 "%ld, .validate_steps = %ld,\n",
                 p->n_data_validation, p->validate_every, p->validate_steps);
    if (p->n_sources)
        text_add(to, "    .source = sources, .sources = %d, .stage_step = stages, .stages = %d,\n",
                 p->n_sources, p->n_stages);
    text_add(to, "    .init_from = %s, .init_seed = %ld,\n", escape_c(p->init_from), p->init_seed);
    text_add(to,
             "    .tensor_ignore = %s, .tensor_ignores = %d, .tensor_prefix = %s, .tensor_prefixes "
             "= %d,\n",
             ignored ? "ignored" : "0", p->n_stored_ignore, prefixes ? "prefixes" : "0",
             p->n_stored_prefix);
    text_add(to, "    .timeout_seconds = %s, .time_limit_seconds = %s, .nonfinite = %s,\n",
             text_number(p->timeout_seconds), text_number(p->time_limit_seconds),
             p->nonfinite == NONFINITE_SKIP ? "NONFINITE_SKIP" : "NONFINITE_STOP");
    saving_numbers(to, p);
    text_add(to, "    .plan_key = keys, .plan_keys = %d, .skip_batch = %s, .skip_batches = %d,\n",
             keys, skips ? "skipped" : "0", skips);
    if (f->device == DEVICE_CUDA) cuda_numbers(to, g, p);
    text_add(to, "    .cpu_feature = features, .cpu_features = sizeof features / sizeof *features "
                 "- 1,\n};\n");
    if (p->predicted) text_add(to, "%s", p->predicted);
}
