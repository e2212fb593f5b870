/* The entry point of the checker: from a file to a valid plan, or to diagnostics. All mistakes in
 * the keys are found before it gives up, so one run reports them all. A plan without mistakes whose
 * keys are not all decided is a space; then the names of its open keys are returned. */
#include "check/check.h"

#include <ctype.h>
#include <string.h>

static double number(struct checker *c, enum key_id key)
{
    const struct constant *v = key_value(c, key);
    return v && v->kind == CONST_NUMBER ? v->number : 0;
}

static int64_t count(struct checker *c, enum key_id key)
{
    const struct constant *v = key_value(c, key);
    return v && v->kind == CONST_NUMBER ? v->top : 0;
}

/* The enumerator that a word stands for: words are listed in the order of plan.h. */
static int word(struct checker *c, enum key_id key)
{
    const struct constant *v = key_value(c, key);
    int index = v ? words_index(key_rows[key].words, v->text) : -1;
    if (index < 0) bug("%s has no word", key_path(key));
    return index;
}

static const char *path_value(struct checker *c, enum key_id key)
{
    const struct constant *v = key_value(c, key);
    return v ? path_resolve(c, v->text, c->key[key].entry->kid[1]->at) : NULL;
}

/* One path or a list of them; none when the key is not given. */
static const char *const *paths_value(struct checker *c, enum key_id key, int *n)
{
    const struct constant *v = key_value(c, key);
    bool list = v && v->kind == CONST_LIST;
    *n = list ? v->n : v ? 1 : 0;
    const char **paths = TAKE_MANY(const char *, *n + 1);
    for (int i = 0; i < *n; i++)
        paths[i] = path_resolve(c, list ? v->item[i].text : v->text, c->key[key].entry->kid[1]->at);
    return paths;
}

static struct span section_place(const struct checker *c, enum section_id s)
{
    return section_given(c, s) ? c->section_at[s] : c->plan->kid[0]->at;
}

/* Where a key is given; its section when it is not. */
static struct span key_place(const struct checker *c, enum key_id key)
{
    return key_given(c, key) ? c->key[key].entry->at : section_place(c, key_rows[key].section);
}

static struct span given_place(const struct checker *c, enum key_id key)
{
    return key_given(c, key) ? key_place(c, key) : (struct span){0};
}

/* "sm_90a": digits, and perhaps the letter of an architecture's or a family's own instructions. */
static bool is_arch(const char *word)
{
    size_t n = strspn(word + (strncmp(word, "sm_", 3) ? 0 : 3), "0123456789");
    const char *end = word + 3 + n;
    return !strncmp(word, "sm_", 3) && n >= 2 &&
           (!*end || ((*end == 'a' || *end == 'f') && !end[1]));
}

static struct provenance provenance_of(struct checker *c, enum section_id s)
{
    const struct constant *source = key_value(c, key_find(s, "source")),
                          *date = key_value(c, key_find(s, "date"));
    return (struct provenance){.spread = number(c, key_find(s, "spread")),
                               .basis = (enum basis)word(c, key_find(s, "basis")),
                               .source = source ? source->text : NULL,
                               .date = date ? date->text : NULL,
                               .at = section_place(c, s)};
}

static struct link link_of(struct checker *c, enum section_id s)
{
    return (struct link){.bandwidth = number(c, key_find(s, "bandwidth")),
                         .latency = number(c, key_find(s, "latency")),
                         .base = number(c, key_find(s, "base")),
                         .from = provenance_of(c, s)};
}

static void set_device(struct plan *p, enum device_kind device)
{
    /* as in plans/clusters */
    static const int64_t outside_bytes[] = {[DEVICE_CPU] = 256LL << 20, [DEVICE_CUDA] = 3LL << 30};
    static const char *const usual[] = {"sm_90a", "sm_100a"};
    p->device = device;
    p->arch = device == DEVICE_CPU ? NULL : p->cluster.arch ? &p->cluster.arch : usual;
    p->n_arch = device == DEVICE_CPU ? 0 : p->cluster.arch ? 1 : (int)COUNT_OF(usual);
    if (device == p->cluster.kind) return;
    if (!p->checkpoint_budget) /* what is kept stays the same on both */
        p->checkpoint_budget = p->cluster.memory_bytes / 100 * 92;
    if (device == DEVICE_CPU) p->cluster.memory_bytes = 0;
    p->cluster.outside_bytes = outside_bytes[device];
}

static void resolve_cluster(struct checker *c, struct plan *p)
{
    struct cluster *m = &p->cluster;
    const struct constant *elastic = key_value(c, K_cluster_elastic),
                          *arch = key_value(c, K_device_arch);
    m->name = c->machines->name;
    m->device_name = c->naming[S_device].name ? c->naming[S_device].name : m->name;
    m->kind = (enum device_kind)word(c, K_device_kind);
    m->elastic = elastic && elastic->truth;
    m->nodes = count(c, K_cluster_nodes);
    m->devices_per_node =
        m->elastic ? p->fsdp * p->dp / m->nodes : count(c, K_cluster_devices_per_node);
    m->host_memory = count(c, K_cluster_host_memory);
    m->arch = arch ? arch->text : NULL;
    m->multiprocessors = count(c, K_device_multiprocessors);
    m->memory_bytes = count(c, K_device_memory);
    m->outside_bytes = count(c, K_device_outside);
    m->bandwidth = number(c, K_device_bandwidth);
    m->flops_bf16 = number(c, K_flops_bf16);
    m->flops_fp32 = number(c, K_flops_fp32);
    m->link_node = link_of(c, S_link_node);
    m->link_network = link_of(c, S_link_network);
    m->cores = count(c, K_cluster_cores);
    m->device_spread = number(c, K_cluster_device_spread);
    m->jitter = number(c, K_cluster_jitter);
    m->imbalance = number(c, K_cluster_imbalance);
    m->host.launch = number(c, K_host_launch);
    m->host.step = number(c, K_host_step);
    m->host.issue = number(c, K_host_issue);
    m->host.from = provenance_of(c, S_host);
    m->contention.multiprocessors = count(c, K_contention_multiprocessors);
    m->contention.block = number(c, K_contention_block);
    m->contention.traffic = number(c, K_contention_traffic);
    m->contention.core = number(c, K_contention_core);
    m->contention.link = number(c, K_contention_link);
    m->contention.from = provenance_of(c, S_contention);
    m->at = section_place(c, S_cluster);
    if (m->arch && !is_arch(m->arch))
        add_help(complain(key_place(c, K_device_arch), "'%s' is no architecture that NVRTC knows",
                          m->arch),
                 "arch = \"sm_90a\"");
    rates_resolve(c, p);
    set_device(p, m->kind);
}

/* Its habits; those that are settings of a plan take the place of the plan's. */
static void resolve_trainer(struct checker *c, struct plan *p)
{
    struct other_trainer *t = &p->trainer;
    t->name = c->naming[S_trainer].name;
    if (!t->name) return;
    t->at = section_place(c, S_trainer);
    t->compile = key_value(c, K_trainer_compile)->truth;
    const struct constant *engine =
        key_value(c, t->compile ? K_trainer_engine_compiled : K_trainer_engine);
    t->engine = engine ? engine->text : NULL;
    t->streams = key_value(c, K_trainer_streams)->truth;
    t->save = (enum trainer_save)word(c, K_trainer_save);
    t->gradients = (enum trainer_gradients)word(c, K_trainer_gradients);
    t->reshard = (enum trainer_reshard)word(c, K_trainer_reshard);
    t->logit_bytes = number(c, K_trainer_logit_bytes);
    t->logit_kept_bytes = number(c, K_trainer_logit_kept_bytes);
    t->fragmentation = number(c, K_trainer_fragmentation);
    p->reshard = t->reshard == TRAINER_RESHARD_NEVER ? RESHARD_BACKWARD : RESHARD_FORWARD;
    p->cluster.host.launch += number(c, K_trainer_launch);
    p->cluster.host.step += number(c, K_trainer_step);
    if (plan_parts_optimizer(p))
        add_help(complain(t->at,
                          "mesh.optimizer = all is planc's own trainer; %s shards its state "
                          "with the weights",
                          t->name),
                 "mesh { optimizer = shard }");
    if (p->checkpoint_mode == CHECKPOINT_BUDGET)
        add_help(
            complain(t->at, "mode budget decides what a trainer of planc keeps, not %s", t->name),
            "activation_checkpoint { mode = none | selective | full }");
}

static void resolve_model(struct checker *c, struct plan *p)
{
    p->architecture = c->model->name;
    p->architecture_body = c->model->block->kid[1];
    p->model_at = section_place(c, S_model);
    hyper_resolve(c, p);
    int source = c->file.item[c->model->file].source, n = 0;
    p->constant = TAKE_MANY(struct hyper, c->constant.n + 1);
    for (int i = 0; i < c->constant.n; i++) {
        struct file_constant *f = &c->constant.item[i];
        bool open = false;
        if (f->source == source &&
            (f->state == KNOWN ||
             value_evaluate(c, SECTION_COUNT, f->entry->kid[1], &f->value, &open)))
            p->constant[n++] = (struct hyper){f->name, f->value, f->entry->at};
    }
    p->n_constants = n;
}

/* Whole numbers and ranges as stretches "0..4 8..12", half open, in order, joined where they touch.
 */
static const char *stretches(const struct constant *list)
{
    struct text t = {0};
    text_add(&t, "%s", "");
    int64_t from = -1, to = -1;
    for (;;) {
        const struct constant *next = NULL; /* the lowest that begins after what is written */
        int64_t low = 0, high = 0;
        for (int i = 0; i < list->n; i++) {
            const struct constant *v = &list->item[i];
            int64_t a = v->kind == CONST_RANGE ? v->item[0].top : v->top,
                    b = (v->kind == CONST_RANGE ? v->item[1].top : v->top) + 1;
            if (b > to && (!next || a < low)) next = v, low = a, high = b;
        }
        if (next && from >= 0 && low <= to) {
            to = high;
            continue;
        }
        if (from >= 0)
            text_add(&t, "%s%lld..%lld", t.length ? " " : "", (long long)from, (long long)to);
        if (!next) return intern(t.bytes);
        from = low;
        to = high;
    }
}

static void resolve_training(struct checker *c, struct plan *p)
{
    const struct constant *betas = key_value(c, K_optimizer_betas),
                          *clip = key_value(c, K_optimizer_clip);
    const struct constant *ignore = key_value(c, K_data_ignore);
    p->lr = number(c, K_optimizer_lr);
    p->beta1 = betas->item[0].number;
    p->beta2 = betas->item[1].number;
    p->eps = number(c, K_optimizer_eps);
    p->weight_decay = number(c, K_optimizer_weight_decay);
    p->clip = clip->kind == CONST_NUMBER ? clip->number : 0;
    group_resolve(c, p);
    const char *schedule = c->naming[S_schedule].name;
    p->schedule = schedule
                      ? (enum schedule_kind)words_index(section_rows[S_schedule].takes, schedule)
                      : SCHEDULE_CONSTANT;
    p->warmup = count(c, K_schedule_warmup);
    p->schedule_steps = count(c, K_schedule_steps);
    p->decay = count(c, K_schedule_decay);
    p->floor = number(c, K_schedule_floor);
    p->warmup_from = number(c, K_schedule_warmup_from);
    p->warmup_to = number(c, K_schedule_warmup_to);
    p->decay_shape = (enum decay_shape)word(c, K_schedule_decay_shape);
    p->data_train = paths_value(c, K_data_train, &p->n_data_train);
    source_resolve(c, p);
    p->data_validation = paths_value(c, K_data_validation, &p->n_data_validation);
    const struct constant *format = key_value(c, K_data_format),
                          *field = key_value(c, K_data_field);
    p->data_format = format && !strcmp(format->text, "auto")
                         ? DATA_RECOGNISED
                         : (enum data_format)word(c, K_data_format);
    p->data_field = field ? field->text : "text";
    p->data_tokenizer = path_value(c, K_data_tokenizer);
    p->data_order = (enum data_order)word(c, K_data_order);
    p->data_seed = count(c, K_data_seed);
    p->has_ignore = ignore->kind == CONST_NUMBER;
    p->ignore = p->has_ignore ? ignore->top : 0;
    p->separate = !strcmp(key_value(c, K_data_documents)->text, "separate");
    const struct constant *end = key_value(c, K_data_end_token);
    p->end_token = end->kind == CONST_NUMBER ? end->top : -1;
    if (p->separate && !p->has_ignore) p->has_ignore = true, p->ignore = -1;
    bool seeded =
        key_given(c, K_init_seed) && c->key[K_init_seed].layer > c->key[K_init_from].layer;
    p->init_seed = count(c, K_init_seed);
    p->init_from = seeded ? NULL : path_value(c, K_init_from);
    p->run_steps = count(c, K_run_steps);
    p->validate_every = key_given(c, K_run_validate_every) ? count(c, K_run_validate_every) : 0;
    p->validate_steps = key_given(c, K_run_validate_steps) ? count(c, K_run_validate_steps) : 0;
    p->timeout_seconds = number(c, K_run_timeout);
    p->time_limit_seconds = number(c, K_run_time_limit);
    const struct constant *skip = key_value(c, K_run_skip_batches);
    p->skip_batches = skip ? stretches(skip) : "";
    p->nonfinite = (enum nonfinite)word(c, K_run_nonfinite);
    p->graph = key_value(c, K_run_graph)->truth;
    p->gemm = (enum gemm)word(c, K_run_gemm);
    p->attention = (enum attention)word(c, K_run_attention);
    p->experts = (enum experts)word(c, K_run_experts);
    p->nccl = key_value(c, K_run_nccl)->truth;
    p->nccl_blocks = key_given(c, K_run_nccl_blocks) ? count(c, K_run_nccl_blocks) : 0;
}

static void resolve_checkpoint(struct checker *c, struct plan *p)
{
    const struct constant *save = key_value(c, K_activation_checkpoint_save),
                          *layers = key_value(c, K_activation_checkpoint_layers);
    struct text t = {0};
    p->checkpoint_mode = (enum checkpoint_mode)word(c, K_activation_checkpoint_mode);
    p->checkpoint_wished = p->checkpoint_mode;
    p->checkpoint_every = count(c, K_activation_checkpoint_every);
    p->checkpoint_layers = layers ? stretches(layers) : "";
    p->checkpoint_budget = count(c, K_activation_checkpoint_budget);
    p->checkpoint_rest = CHECKPOINT_NONE;
    p->checkpoint_rest_save = "";
    for (int i = 0; save && i < save->n; i++)
        text_add(&t, "%s%s", i ? " " : "", save->item[i].text);
    if (p->checkpoint_mode == CHECKPOINT_AUTO) p->checkpoint_every = 1, p->checkpoint_layers = "";
    p->checkpoint_save = p->checkpoint_mode != CHECKPOINT_SELECTIVE ? ""
                         : save                                     ? intern(t.bytes ? t.bytes : "")
                                                                    : "attention matmul routing";
}

static void resolve_saving(struct checker *c, struct plan *p)
{
    const struct constant *every = key_value(c, K_checkpoint_every),
                          *keep = key_value(c, K_checkpoint_keep);
    const bool timed = every->unit == UNIT_SECONDS;
    p->saving = (struct saving){.given = section_given(c, S_checkpoint),
                                .directory = path_value(c, K_checkpoint_directory),
                                .every_steps = timed ? 0 : every->top,
                                .every_seconds = timed ? every->number : 0,
                                .keep = keep->kind == CONST_NUMBER ? keep->top : 0,
                                .keep_every = count(c, K_checkpoint_keep_every),
                                .async = key_value(c, K_checkpoint_async)->truth};
}

/* All values, for those who ask for every key by its name. */
static void resolve_values(struct checker *c, struct plan *p)
{
    p->value = TAKE_MANY(struct constant, KEY_COUNT);
    p->has_value = TAKE_MANY(bool, KEY_COUNT);
    for (int k = 0; k < KEY_COUNT; k++) {
        const struct constant *v = key_value(c, (enum key_id)k);
        p->has_value[k] = v != NULL;
        if (v) p->value[k] = *v;
    }
}

static void resolve(struct checker *c, struct plan *p)
{
    const struct ast *head = c->plan->kid[0];
    const char *path = c->file.item[0].path, *base = strrchr(path, '/');
    p->path = path;
    p->title = head->n > 1 ? head->kid[1]->text : base ? base + 1 : path;
    p->fsdp = count(c, K_mesh_fsdp);
    p->dp = count(c, K_mesh_dp);
    p->prefetch = count(c, K_mesh_prefetch);
    p->reduce_slots = count(c, K_mesh_reduce_slots);
    p->reshard = (enum reshard)word(c, K_mesh_reshard);
    p->optimizer_all = word(c, K_mesh_optimizer) == 1;
    p->compute = (enum element)word(c, K_precision_compute);
    resolve_checkpoint(c, p);
    p->sequence = count(c, K_batch_sequence);
    p->local = count(c, K_batch_local);
    p->global = count(c, K_batch_global);
    p->accumulation = p->global / (p->local * p->fsdp * p->dp);
    p->loss_chunks = p->chunks_wished = count(c, K_batch_loss_chunks);
    resolve_cluster(c, p);
    resolve_trainer(c, p);
    resolve_model(c, p);
    resolve_training(c, p);
    resolve_saving(c, p);
    resolve_values(c, p);
    p->at.saving = section_place(c, S_checkpoint);
    p->at.mesh = section_place(c, S_mesh);
    p->at.batch = section_place(c, S_batch);
    p->at.checkpoint = section_place(c, S_activation_checkpoint);
    p->at.save = key_place(c, K_activation_checkpoint_save);
    p->at.layers = key_place(c, K_activation_checkpoint_layers);
    p->at.budget = key_place(c, K_activation_checkpoint_budget);
    p->at.data = section_place(c, S_data);
    p->given.graph = given_place(c, K_run_graph);
    p->given.gemm = given_place(c, K_run_gemm);
    p->given.attention = given_place(c, K_run_attention);
    p->given.experts = given_place(c, K_run_experts);
    p->given.nccl = given_place(c, K_run_nccl);
    p->given.nccl_blocks = given_place(c, K_run_nccl_blocks);
    if (key_given(c, K_mesh_dp) && !value_is_auto(&c->key[K_mesh_dp]))
        p->given.dp = key_place(c, K_mesh_dp);
    if (key_given(c, K_batch_global) && !value_is_auto(&c->key[K_batch_global]))
        p->given.global = key_place(c, K_batch_global);
}

/* ── `require (a <= b) "why"` of a plan ──────────────────────────────────────── */

static void note_values(struct checker *c, struct diagnostic *d, const struct ast *e)
{
    if (e->kind == AST_PATH || e->kind == AST_NAME) {
        enum key_id key = key_find_path(e->text);
        struct declared *h = !strncmp(e->text, "model.", 6) ? hyper_find(c, e->text + 6) : NULL;
        const struct constant *v = key != KEY_COUNT ? key_value(c, key)
                                   : h              ? hyper_value(c, h)
                                                    : NULL;
        struct span at = key != KEY_COUNT ? c->key[key].at : h ? h->slot.at : e->at;
        if (v) add_note(d, at.file ? at : e->at, "%s is %s", e->text, constant_text(v));
        return;
    }
    for (int i = 0; i < e->n; i++) note_values(c, d, e->kid[i]);
}

static void check_require(struct checker *c, const struct ast *head)
{
    if (head->n < 2 || head->n > 3 || (head->n == 3 && head->kid[2]->kind != AST_STRING)) {
        add_help(complain(head->at, "require is a condition and a reason"),
                 "require (batch.sequence <= 8192) \"why\"");
        return;
    }
    const struct ast *condition = head->kid[1];
    struct constant v;
    bool open = false;
    if (!value_evaluate(c, SECTION_COUNT, condition, &v, &open)) return;
    if (v.kind != CONST_TRUTH)
        add_help(complain(condition->at, "require wants a condition, and %s is not one",
                          constant_text(&v)),
                 "require (batch.sequence <= 8192) \"why\"");
    else if (!v.truth)
        note_values(
            c,
            complain(condition->at, "%s", head->n == 3 ? head->kid[2]->text : "this does not hold"),
            condition);
}

/* ── Entry point ─────────────────────────────────────────────────────────── */

struct checker *check_begin(const char *path, const char *const *set, int n_set)
{
    struct checker *c = TAKE(struct checker);
    load_all(c, path, set, n_set);
    if (!c->plan) return NULL;
    collect(c);
    return c;
}

struct plan *check_end(struct checker *c, int before)
{
    check_keys(c);
    if (c->model) hyper_check(c);
    check_together(c);
    for (int i = 0; i < c->require.n; i++) check_require(c, c->require.item[i]);
    struct plan *p = TAKE(struct plan);
    stored_resolve(c, p);
    if (error_count() > before || c->open.n) return NULL;
    if (!c->model || !c->machines) bug("a plan without model or cluster passed its checks");
    resolve(c, p);
    return error_count() > before ? NULL : p;
}

struct plan *plan_load(const char *path, const char *const *set, int n_set,
                       const char *const **open_keys, int *n_open)
{
    int before = error_count();
    *open_keys = NULL;
    *n_open = 0;
    struct checker *c = check_begin(path, set, n_set);
    if (!c) return NULL;
    struct plan *p = check_end(c, before);
    *open_keys = c->open.item;
    *n_open = c->open.n;
    return p;
}

/* ── Taking a plan to another device ─────────────────────────────────────────── */

const char *plan_set_arch(struct plan *p, const char *list)
{
    VECTOR(const char *) all = {0};
    for (const char *s = list;; s++) {
        size_t n = strcspn(s, ",");
        const char *word = intern_bytes(s, n);
        if (!is_arch(word)) return text_format("'%s' is no architecture such as sm_90a", word);
        for (int i = 0; i < all.n; i++)
            if (all.item[i] == word) return text_format("'%s' is given twice", word);
        PUSH(&all, word);
        s += n;
        if (!*s) break;
    }
    p->arch = all.item;
    p->n_arch = all.n;
    return NULL;
}

/* Architectures on which cuDNN has a gradient of attention with ordered sums in little memory, and
 * cuBLASLt products by experts. */
static bool has_libraries(const struct plan *p)
{
    static const char *const with[] = {"sm_90", "sm_100", "sm_103"};
    if (p->trainer.name) return false; /* another trainer has engines of its own */
    for (int i = 0; i < p->n_arch && p->device == DEVICE_CUDA; i++)
        for (size_t k = 0; k < COUNT_OF(with); k++) {
            size_t n = strlen(with[k]);
            if (!strncmp(p->arch[i], with[k], n) && !isdigit((unsigned char)p->arch[i][n]))
                return true;
        }
    return false;
}

enum attention plan_attention(const struct plan *p)
{
    return p->attention != ATTENTION_AUTO ? p->attention
           : has_libraries(p)             ? ATTENTION_CUDNN
                                          : ATTENTION_PLANC;
}

enum experts plan_experts(const struct plan *p)
{
    return p->experts != EXPERTS_AUTO ? p->experts
           : has_libraries(p)         ? EXPERTS_CUBLASLT
                                      : EXPERTS_PLANC;
}

const char *const device_names[] = {[DEVICE_CPU] = "cpu", [DEVICE_CUDA] = "cuda"};

void plan_take_device(struct plan *p, const char *name)
{
    for (int k = DEVICE_CPU; k <= DEVICE_CUDA; k++)
        if (name && !strcmp(name, device_names[k])) set_device(p, (enum device_kind)k);
}
