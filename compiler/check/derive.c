/* Rules that involve several keys: values that follow from others (replicas from devices, the
 * global batch from the local one) and values that must agree (mesh and cluster, batch and mesh).
 * Every message names the numbers that it compared and computes a fix. A rule is silent if one of
 * its numbers is open, wrong or missing: that is reported where it is found. */
#include "check/check.h"

#include <string.h>

bool whole_value(struct checker *c, enum key_id key, int64_t *out, enum state *state)
{
    const struct constant *v = key_value(c, key);
    if (v && v->kind == CONST_NUMBER) {
        *out = v->top;
        return true;
    }
    if (state) *state = c->key[key].state == OPEN ? OPEN : FAILED;
    return false;
}

static bool is_elastic(struct checker *c)
{
    const struct constant *v = key_value(c, K_cluster_elastic);
    return v && v->truth;
}

/* Where the plan gives a key; else where it speaks of its section; else the plan's head. */
struct span idle_place(struct slot *slot)
{
    slot->idle = true;
    return slot->entry->at;
}

struct span place_of(const struct checker *c, enum key_id key)
{
    if (c->key[key].at.file) return c->key[key].at;
    enum section_id s = key_rows[key].section;
    if (section_given(c, s)) return c->section_at[s];
    return c->plan->kid[0]->at;
}

/* Ranks are numbered by MPI; tokens of a step are counted in doubles, too. */
static const int64_t DEVICES_LIMIT = 1 << 20, TOKENS_LIMIT = (int64_t)1 << 53,
                     MICRO_LIMIT = INT32_MAX, SAMPLES_LIMIT = (int64_t)1 << 62;

static bool too_many(struct span at, const char *what, int64_t limit)
{
    complain(at, "more %s than planc counts: at most %s", what, text_count(limit));
    return false;
}

static bool device_count(struct checker *c, int64_t *out, enum state *state)
{
    int64_t nodes, each;
    if (!whole_value(c, K_cluster_nodes, &nodes, state) ||
        !whole_value(c, K_cluster_devices_per_node, &each, state))
        return false;
    if (!__builtin_mul_overflow(nodes, each, out) && *out <= DEVICES_LIMIT) return true;
    if (state) *state = FAILED;
    return too_many(place_of(c, K_cluster_nodes), "devices of the cluster", DEVICES_LIMIT);
}

/* The divisors of n next to x, below or at it and above (0: none). */
static void divisors_beside(int64_t n, int64_t x, int64_t *below, int64_t *above)
{
    *below = *above = 0;
    for (int64_t i = 1; i <= n / i && i <= 1 << 22; i++) { /* 2^22: a search, not a proof */
        if (n % i) continue;
        int64_t pair[2] = {i, n / i};
        for (int j = 0; j < 2; j++) {
            if (pair[j] <= x && pair[j] > *below) *below = pair[j];
            if (pair[j] > x && (!*above || pair[j] < *above)) *above = pair[j];
        }
    }
}

static void note_devices(struct checker *c, struct diagnostic *d)
{
    int64_t nodes, each;
    if (!whole_value(c, K_cluster_nodes, &nodes, NULL) ||
        !whole_value(c, K_cluster_devices_per_node, &each, NULL))
        return;
    struct span at = c->key[K_cluster_nodes].at;
    if (!at.file) at = c->naming[S_cluster].at;
    add_note(d, at, "%lld node%s of %lld device%s", (long long)nodes, nodes == 1 ? "" : "s",
             (long long)each, each == 1 ? "" : "s");
}

/* ── Derived keys ────────────────────────────────────────────────────────────── */

/* How many nodes there are was said in a way that was not understood. */
static bool nodes_unknown(const struct checker *c)
{
    return c->absent_is_fine[K_cluster_nodes] ||
           (c->broken && c->key[K_cluster_nodes].layer <= LAYER_CLUSTER);
}

/* The plan leaves the nodes at one, and the mesh asks for more: that is where a number is
 * missing. */
static bool too_few_nodes(struct checker *c, int64_t asked, int64_t devices)
{
    int64_t each;
    if (!c->machines || c->key[K_cluster_nodes].layer > LAYER_CLUSTER || asked <= devices ||
        !whole_value(c, K_cluster_devices_per_node, &each, NULL) || asked % each)
        return false;
    /* of a broken plan the block that names the cluster may be missing */
    const struct span mesh = place_of(c, K_mesh_fsdp),
                      at = c->naming[S_cluster].at.file ? c->naming[S_cluster].at : mesh;
    struct diagnostic *d = complain(
        at, "cluster %s has %lld device%s until it says more nodes, the mesh asks for %lld",
        c->machines->name, (long long)devices, devices == 1 ? "" : "s", (long long)asked);
    add_note(d, mesh, "the mesh");
    add_help(d,
             at.file && !strcmp(source_name(at.file), "--set")
                 ? "--set cluster=%s --set cluster.nodes=%lld"
                 : "cluster %s { nodes = %lld }",
             c->machines->name, (long long)(asked / each));
    return true;
}

static enum state derive_dp(struct checker *c, int64_t *dp)
{
    enum state state = FAILED;
    int64_t fsdp, devices;
    *dp = 1;
    if (is_elastic(c)) return KNOWN;
    if (!c->machines || !whole_value(c, K_mesh_fsdp, &fsdp, &state) ||
        !device_count(c, &devices, &state))
        return state;
    *dp = devices / fsdp;
    if (devices % fsdp == 0) return KNOWN;
    if (nodes_unknown(c) || too_few_nodes(c, fsdp, devices)) return FAILED;
    struct diagnostic *d = complain(place_of(c, K_mesh_fsdp),
                                    "fsdp = %lld does not divide the %lld devices of the cluster",
                                    (long long)fsdp, (long long)devices);
    note_devices(c, d);
    int64_t below, above;
    divisors_beside(devices, fsdp, &below, &above);
    const int64_t way_out[2] = {below, above};
    for (int i = 0; i < 2; i++)
        if (way_out[i])
            add_help(d, "fsdp = %lld makes %lld with dp = %lld", (long long)way_out[i],
                     (long long)devices, (long long)(devices / way_out[i]));
    return FAILED;
}

/* Devices of the mesh. */
static bool mesh_size(struct checker *c, int64_t *out, enum state *state)
{
    int64_t fsdp, dp;
    if (!whole_value(c, K_mesh_fsdp, &fsdp, state) || !whole_value(c, K_mesh_dp, &dp, state))
        return false;
    if (!__builtin_mul_overflow(fsdp, dp, out) && *out <= DEVICES_LIMIT) return true;
    if (state) *state = FAILED;
    return too_many(place_of(c, K_mesh_fsdp), "devices of the mesh", DEVICES_LIMIT);
}

/* Sequences that the devices hold at once. */
static bool held_sequences(struct checker *c, int64_t *out, enum state *state)
{
    int64_t devices, local;
    if (!whole_value(c, K_batch_local, &local, state) || !mesh_size(c, &devices, state))
        return false;
    if (!__builtin_mul_overflow(devices, local, out)) return true;
    if (state) *state = FAILED;
    return too_many(place_of(c, K_batch_local), "sequences at once", TOKENS_LIMIT);
}

static void derive_compute(struct checker *c, struct slot *slot)
{
    const struct constant *kind = key_value(c, K_device_kind);
    slot->state = kind ? KNOWN : c->key[K_device_kind].state == OPEN ? OPEN : FAILED;
    if (kind)
        slot->value = (struct constant){
            .kind = CONST_WORD, .text = intern(!strcmp(kind->text, "cuda") ? "bf16" : "fp32")};
}

void derive_key(struct checker *c, enum key_id key, struct slot *slot)
{
    int64_t n = 0;
    enum state state = KNOWN;
    if (key == K_precision_compute) {
        derive_compute(c, slot);
        return;
    }
    /* decided when the plan is known (passes/budget.h) */
    if (key == K_data_format || key == K_activation_checkpoint_mode) {
        slot->state = KNOWN;
        slot->value = (struct constant){.kind = CONST_WORD, .text = intern("auto")};
        return;
    }
    if (key == K_mesh_dp)
        state = derive_dp(c, &n);
    else if (key == K_batch_global)
        held_sequences(c, &n, &state);
    else if (key == K_run_steps)
        state =
            whole_value(c, K_schedule_steps, &n, &state) ? KNOWN : c->key[K_schedule_steps].state;
    else
        state = ABSENT; /* not known, and nothing needs it */
    if (slot->state == BUSY) {
        slot->state = state;
        slot->value = constant_whole(n);
    }
}

/* ── Rules ───────────────────────────────────────────────────────────────────── */

static void check_mesh(struct checker *c)
{
    int64_t fsdp, dp, devices, covered, nodes;
    if (!whole_value(c, K_mesh_fsdp, &fsdp, NULL) || !whole_value(c, K_mesh_dp, &dp, NULL) ||
        !mesh_size(c, &covered, NULL) || !c->machines)
        return;
    if (is_elastic(c)) {
        if (key_given(c, K_cluster_devices_per_node))
            complain(place_of(c, K_cluster_devices_per_node),
                     "cluster %s has as many devices as the mesh asks for", c->machines->name);
        else if (whole_value(c, K_cluster_nodes, &nodes, NULL) && covered % nodes)
            add_note(complain(place_of(c, K_cluster_nodes),
                              "%lld devices do not spread evenly over %lld nodes",
                              (long long)covered, (long long)nodes),
                     place_of(c, K_mesh_fsdp), "the mesh is %lld x %lld", (long long)fsdp,
                     (long long)dp);
        return;
    }
    if (!device_count(c, &devices, NULL) || covered == devices || nodes_unknown(c) ||
        (key_given(c, K_mesh_dp) && too_few_nodes(c, covered, devices)))
        return;
    struct span at = place_of(c, key_given(c, K_mesh_fsdp) ? K_mesh_fsdp : K_mesh_dp);
    struct diagnostic *d =
        complain(at, "the mesh covers %lld device%s, the cluster has %lld", (long long)covered,
                 covered == 1 ? "" : "s", (long long)devices);
    note_devices(c, d);
    int64_t below, above;
    if (devices % dp == 0)
        add_help(d, "fsdp = %lld makes %lld", (long long)(devices / dp), (long long)devices);
    else if (devices % fsdp == 0)
        add_help(d, "dp = %lld makes %lld", (long long)(devices / fsdp), (long long)devices);
    else {
        divisors_beside(devices, fsdp, &below, &above);
        int64_t best = above && (!below || above - fsdp < fsdp - below) ? above : below;
        add_help(d, "fsdp = %lld with dp = %lld makes %lld", (long long)best,
                 (long long)(devices / best), (long long)devices);
    }
}

/* What is counted over a step and over a run; false after a diagnostic. */
static bool countable(struct checker *c)
{
    int64_t global, sequence, local, steps, n;
    if (!whole_value(c, K_batch_global, &global, NULL) ||
        !whole_value(c, K_batch_local, &local, NULL) ||
        !whole_value(c, K_batch_sequence, &sequence, NULL))
        return true;
    if (__builtin_mul_overflow(local, sequence, &n) || n > MICRO_LIMIT)
        return too_many(place_of(c, K_batch_local), "tokens of a micro-batch", MICRO_LIMIT);
    if (__builtin_mul_overflow(global, sequence, &n) || n > TOKENS_LIMIT)
        return too_many(place_of(c, K_batch_global), "tokens of a step", TOKENS_LIMIT);
    for (int i = 0; i < 2; i++) {
        enum key_id key = i ? K_run_steps : K_schedule_steps;
        if (whole_value(c, key, &steps, NULL) &&
            (__builtin_mul_overflow(global, steps, &n) || n > SAMPLES_LIMIT))
            return too_many(place_of(c, key), "samples of a run (global x steps)", SAMPLES_LIMIT);
    }
    return true;
}

/* The local batch next below that divides what a device takes in a step, beside the global ones
 * next to it. */
static void help_local(struct diagnostic *d, int64_t each, int64_t local, int64_t below,
                       int64_t held)
{
    int64_t above;
    divisors_beside(each, local - 1, &local, &above);
    if (!__builtin_add_overflow(below, held, &above))
        add_help(d, "global = %lld or %lld, or local = %lld", (long long)below, (long long)above,
                 (long long)local);
}

static void check_batch(struct checker *c)
{
    int64_t global, held, local = 1, devices, chunks;
    int64_t sequence, tokens;
    if (!countable(c)) return;
    if (whole_value(c, K_batch_loss_chunks, &chunks, NULL) &&
        whole_value(c, K_batch_local, &local, NULL) &&
        whole_value(c, K_batch_sequence, &sequence, NULL) &&
        !__builtin_mul_overflow(local, sequence, &tokens) && tokens % chunks) {
        struct diagnostic *d =
            complain(place_of(c, K_batch_loss_chunks),
                     "loss_chunks = %lld does not divide the %lld tokens of a micro-batch",
                     (long long)chunks, (long long)tokens);
        add_note(d, place_of(c, K_batch_local), "local = %lld sequences of %lld tokens",
                 (long long)local, (long long)sequence);
        int64_t below, above;
        divisors_beside(tokens, chunks, &below, &above);
        if (above && above != below)
            add_help(d, "loss_chunks = %lld or %lld", (long long)below, (long long)above);
        else
            add_help(d, "loss_chunks = %lld", (long long)below);
    }
    local = 1;
    if (key_given(c, K_batch_global) && whole_value(c, K_batch_global, &global, NULL) &&
        whole_value(c, K_batch_sequence, &sequence, NULL) && global > (int64_t)500000000 / sequence)
        warn(place_of(c, K_batch_global),
             "global counts sequences, not tokens: %s of them are %.3g G tokens per step",
             text_count(global), (double)global * (double)sequence * 1e-9);
    if (!key_given(c, K_batch_global) || !whole_value(c, K_batch_global, &global, NULL) ||
        !held_sequences(c, &held, NULL) || global % held == 0)
        return;
    whole_value(c, K_batch_local, &local, NULL);
    devices = held / local;
    struct diagnostic *d = complain(
        place_of(c, K_batch_global),
        "global = %lld is not a multiple of the %lld sequences that %lld device%s hold at once",
        (long long)global, (long long)held, (long long)devices, devices == 1 ? "" : "s");
    add_note(d, place_of(c, K_batch_local), "local = %lld on each of %lld", (long long)local,
             (long long)devices);
    int64_t more;
    if (global < held && global % devices == 0)
        add_help(d, "local = %lld, or global = %lld", (long long)(global / devices),
                 (long long)held);
    else if (global < devices)
        add_help(d, "global = %lld with local = 1: a device holds at least one sequence",
                 (long long)devices);
    else if (global < held)
        add_help(d, "local = 1 and global = %lld, or global = %lld",
                 (long long)(global - global % devices), (long long)held);
    else if (global % devices == 0 && local > 1)
        help_local(d, global / devices, local, global - global % held, held);
    else if (!__builtin_add_overflow(global - global % held, held, &more))
        add_help(d, "global = %lld or %lld", (long long)(more - held), (long long)more);
}

/* Keys that the mode makes idle are said to be. */
static void check_checkpoint(struct checker *c)
{
    static const enum key_id with_mode[] = {
        K_activation_checkpoint_save, K_activation_checkpoint_every, K_activation_checkpoint_layers,
        K_activation_checkpoint_budget};
    const struct constant *mode = key_value(c, K_activation_checkpoint_mode);
    for (size_t i = 0; mode && i < COUNT_OF(with_mode); i++) {
        bool budget = !strcmp(mode->text, "budget"), automatic = !strcmp(mode->text, "auto");
        bool works = with_mode[i] == K_activation_checkpoint_budget ? budget
                     : with_mode[i] == K_activation_checkpoint_save
                         ? !strcmp(mode->text, "selective")
                         : strcmp(mode->text, "none") && !budget && !automatic;
        if (key_given(c, with_mode[i]) && !works)
            add_help(warn(idle_place(&c->key[with_mode[i]]),
                          "%s has no effect: activation_checkpoint.mode is %s",
                          key_path(with_mode[i]), mode->text),
                     with_mode[i] == K_activation_checkpoint_budget ? "mode = budget"
                                                                    : "mode = selective");
    }
}

/* With one shard in FP32 weights are read where they are, unless replicas have parts of it. */
static void check_gathering(struct checker *c)
{
    static const enum key_id of_gathers[] = {K_mesh_prefetch, K_mesh_reshard};
    const struct constant *compute = key_value(c, K_precision_compute),
                          *optimizer = key_value(c, K_mesh_optimizer);
    const bool all = optimizer && optimizer->kind == CONST_WORD && !strcmp(optimizer->text, "all");
    int64_t fsdp, dp;
    if (all && whole_value(c, K_mesh_dp, &dp, NULL) && dp > 1) return;
    if (all && whole_value(c, K_mesh_dp, &dp, NULL) && key_given(c, K_mesh_optimizer))
        warn(idle_place(&c->key[K_mesh_optimizer]),
             "mesh.optimizer = all has no effect: with dp = 1 the shards are all devices");
    if (!whole_value(c, K_mesh_fsdp, &fsdp, NULL) || fsdp != 1 || !compute ||
        compute->kind != CONST_WORD || strcmp(compute->text, "fp32"))
        return;
    for (size_t i = 0; i < COUNT_OF(of_gathers); i++)
        if (key_given(c, of_gathers[i]))
            warn(idle_place(&c->key[of_gathers[i]]),
                 "%s has no effect: nothing is gathered with fsdp = 1 in fp32",
                 key_path(of_gathers[i]));
}

/* Collectives of shards and of replicas run at a time, and neither may wait for the other's
 * multiprocessors: runtime/cuda/collectives_nccl.c. */
static void check_blocks(struct checker *c)
{
    int64_t blocks, all, fsdp, dp;
    if (!key_given(c, K_run_nccl_blocks) || !whole_value(c, K_run_nccl_blocks, &blocks, NULL) ||
        !whole_value(c, K_device_multiprocessors, &all, NULL) ||
        !whole_value(c, K_mesh_fsdp, &fsdp, NULL) || !whole_value(c, K_mesh_dp, &dp, NULL))
        return;
    const int64_t at_a_time = fsdp > 1 && dp > 1 ? 2 : 1;
    if (blocks <= all / at_a_time) return;
    struct diagnostic *d =
        complain(place_of(c, K_run_nccl_blocks),
                 at_a_time == 2 ? "%lld blocks for the shards and as many for the replicas do not "
                                  "fit on %lld multiprocessors at a time"
                                : "a collective of %lld blocks does not fit on %lld "
                                  "multiprocessors",
                 (long long)blocks, (long long)all);
    add_note(d, place_of(c, K_device_multiprocessors), "%lld multiprocessors", (long long)all);
    add_help(d, "nccl_blocks = %lld", (long long)(all / at_a_time));
}

static void check_init(struct checker *c)
{
    struct slot *seed = &c->key[K_init_seed], *from = &c->key[K_init_from];
    if (seed->entry && from->entry && seed->layer == from->layer)
        add_note(complain(seed->at, "weights come from a seed or from files, not from both"),
                 from->at, "from files");
}

static void need(struct checker *c, enum key_id key, const char *example)
{
    key_value(c, key);
    if (c->key[key].state != ABSENT || c->broken || c->absent_is_fine[key]) return;
    enum section_id s = key_rows[key].section;
    struct span at = section_given(c, s) ? c->section_at[s] : c->plan->kid[0]->at;
    add_help(complain(at, "%s is not given", key_path(key)), "%s", example);
}

static void check_cluster(struct checker *c)
{
    if (!c->machines) return;
    const struct constant *kind = key_value(c, K_device_kind);
    struct span at = c->machines->block->kid[0]->at;
    if (c->broken) return;
    if (c->key[K_device_kind].state == ABSENT)
        add_help(complain(at, "cluster %s does not say what its devices are", c->machines->name),
                 "device \"name\" { kind = cuda }");
    key_value(c, K_device_memory);
    if (kind && !strcmp(kind->text, "cuda") && c->key[K_device_memory].state == ABSENT &&
        !c->absent_is_fine[K_device_memory])
        add_help(
            complain(at, "cluster %s does not say how much memory a device has", c->machines->name),
            "device \"name\" { memory = 80GiB }");
}

/* An entry of a block by its name, if it is a plain number. */
static int64_t number_in(const struct ast *items, const char *name)
{
    struct constant v;
    for (int i = 0; i < items->n; i++)
        if (items->kid[i]->kind == AST_ENTRY && !strcmp(items->kid[i]->text, name) &&
            items->kid[i]->kid[1]->kind == AST_NUMBER &&
            constant_from_number(items->kid[i]->kid[1], &v) && constant_is_whole(&v))
            return v.top;
    return 0;
}

/* The cluster that the file uses, with as many nodes as the mesh asks for. */
static void name_a_cluster(struct checker *c, struct diagnostic *d)
{
    const char *used = c->cluster.n ? c->cluster.item[c->cluster.n - 1].name : NULL;
    int64_t each = used ? number_in(c->cluster.item[c->cluster.n - 1].block->kid[1],
                                    "devices_per_node")
                        : 0,
            fsdp, dp = 1, devices;
    if (!used) {
        add_help(d, "use \"clusters/h100.plan\" before the plan, and in it: cluster h100 { nodes = "
                    "1 }; `planc keys cluster` lists the machines");
        return;
    }
    bool known = each > 0 && whole_value(c, K_mesh_fsdp, &fsdp, NULL) &&
                 !(key_given(c, K_mesh_dp) && !whole_value(c, K_mesh_dp, &dp, NULL)) &&
                 !__builtin_mul_overflow(fsdp, dp, &devices);
    int64_t nodes = known && devices % each == 0 ? devices / each : 1;
    if (each)
        add_help(d, "cluster %s { nodes = %lld }", used, (long long)nodes);
    else
        add_help(d, "cluster %s { }", used);
}

void check_together(struct checker *c)
{
    struct span head = c->plan->kid[0]->at;
    if (!c->naming[S_model].name && !c->broken)
        add_help(complain(section_given(c, S_model) ? c->section_at[S_model] : head,
                          "the plan names no model"),
                 "model %s { … }", c->architecture.n == 1 ? c->architecture.item[0].name : "llama");
    if (!c->naming[S_cluster].name && !c->broken)
        name_a_cluster(c, complain(section_given(c, S_cluster) ? c->section_at[S_cluster] : head,
                                   "the plan names no cluster"));
    if (section_given(c, S_batch) || c->absent_is_fine[K_batch_sequence] ||
        c->absent_is_fine[K_batch_local]) {
        need(c, K_batch_sequence, "batch { sequence = 4096 }");
        need(c, K_batch_local, "batch { local = 1 }");
    } else if (!c->broken) {
        add_help(complain(head, "the plan has no batch"), "batch { sequence = 4096;  local = 1 }");
    }
    for (int k = 0; k < KEY_COUNT; k++)
        if (key_rows[k].section == S_trainer && key_given(c, (enum key_id)k) &&
            !c->naming[S_trainer].name && !c->broken) {
            add_help(complain(c->key[k].at, "%s is a key of another trainer, and none is named",
                              key_path((enum key_id)k)),
                     "trainer = torchtitan; `planc keys trainer` lists the library's");
            break;
        }
    check_cluster(c);
    check_mesh(c);
    check_gathering(c);
    check_blocks(c);
    check_checkpoint(c);
    check_batch(c);
    check_training(c);
    check_init(c);
}
