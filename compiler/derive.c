/* Keys together: what follows from others (replicas from devices, the global batch from the local one) and what must
 * agree (mesh and cluster, batch and mesh). Every message here names the numbers it compared and computes its way out.
 * A rule is silent when one of its numbers is open, wrong or missing: that has been said where it was found. */
#include "check.h"

#include <string.h>

/* A whole key's number. False when it has none; *state, when asked for, then is what a key that follows from it becomes. */
static bool whole(struct checker *c, enum key_id key, int64_t *out, enum state *state)
{
    const struct constant *v = key_value(c, key);
    if (v && v->kind == CONST_NUMBER) {
        *out = v->top;
        return true;
    }
    if (state)
        *state = c->key[key].state == OPEN ? OPEN : FAILED;
    return false;
}

static bool is_elastic(struct checker *c)
{
    const struct constant *v = key_value(c, K_cluster_elastic);
    return v && v->truth;
}

/* Where the plan gives a key; else where it speaks of its section; else the plan's head. */
static struct span place_of(const struct checker *c, enum key_id key)
{
    if (c->key[key].at.file)
        return c->key[key].at;
    enum section_id s = key_rows[key].section;
    if (section_given(c, s))
        return c->section_at[s];
    return c->plan->kid[0]->at;
}

static bool too_many(struct span at)
{
    complain(at, "the product of the sizes here does not fit in 64 bits");
    return false;
}

static bool device_count(struct checker *c, int64_t *out, enum state *state)
{
    int64_t nodes, each;
    if (!whole(c, K_cluster_nodes, &nodes, state) || !whole(c, K_cluster_devices_per_node, &each, state))
        return false;
    if (!__builtin_mul_overflow(nodes, each, out))
        return true;
    if (state)
        *state = FAILED;
    return too_many(place_of(c, K_cluster_nodes));
}

/* The divisors of n next to x, below or at it and above (0: none). */
static void divisors_beside(int64_t n, int64_t x, int64_t *below, int64_t *above)
{
    *below = *above = 0;
    for (int64_t i = 1; i <= n / i; i++) {
        if (n % i)
            continue;
        int64_t pair[2] = { i, n / i };
        for (int j = 0; j < 2; j++) {
            if (pair[j] <= x && pair[j] > *below)
                *below = pair[j];
            if (pair[j] > x && (!*above || pair[j] < *above))
                *above = pair[j];
        }
    }
}

static void note_devices(struct checker *c, struct diagnostic *d)
{
    int64_t nodes, each;
    if (!whole(c, K_cluster_nodes, &nodes, NULL) || !whole(c, K_cluster_devices_per_node, &each, NULL))
        return;
    struct span at = c->key[K_cluster_nodes].at;
    if (!at.file)
        at = c->naming[S_cluster].at;
    add_note(d, at, "%lld node%s of %lld device%s", (long long)nodes, nodes == 1 ? "" : "s", (long long)each, each == 1 ? "" : "s");
}

/* Derived keys ------------------------------------------------------------------------------------------------------------ */

/* How many nodes there are was said in a way that was not understood. */
static bool nodes_unknown(const struct checker *c)
{
    return c->absent_is_fine[K_cluster_nodes] || (c->broken && c->key[K_cluster_nodes].layer <= LAYER_CLUSTER);
}

static enum state derive_dp(struct checker *c, int64_t *dp)
{
    enum state state = FAILED;
    int64_t fsdp, devices;
    *dp = 1;
    if (is_elastic(c))
        return KNOWN;
    if (!c->machines || !whole(c, K_mesh_fsdp, &fsdp, &state) || !device_count(c, &devices, &state))
        return state;
    *dp = devices / fsdp;
    if (devices % fsdp == 0)
        return KNOWN;
    if (nodes_unknown(c))
        return FAILED;
    struct diagnostic *d = complain(place_of(c, K_mesh_fsdp), "fsdp = %lld does not divide the %lld devices of the cluster", (long long)fsdp, (long long)devices);
    note_devices(c, d);
    int64_t below, above;
    divisors_beside(devices, fsdp, &below, &above);
    const int64_t way_out[2] = { below, above };
    for (int i = 0; i < 2; i++)
        if (way_out[i])
            add_help(d, "fsdp = %lld makes %lld with dp = %lld", (long long)way_out[i], (long long)devices, (long long)(devices / way_out[i]));
    return FAILED;
}

/* Devices of the mesh. */
static bool mesh_size(struct checker *c, int64_t *out, enum state *state)
{
    int64_t fsdp, dp;
    if (!whole(c, K_mesh_fsdp, &fsdp, state) || !whole(c, K_mesh_dp, &dp, state))
        return false;
    if (!__builtin_mul_overflow(fsdp, dp, out))
        return true;
    if (state)
        *state = FAILED;
    return too_many(place_of(c, K_mesh_fsdp));
}

/* Sequences that the devices hold at once. */
static bool held_sequences(struct checker *c, int64_t *out, enum state *state)
{
    int64_t devices, local;
    if (!whole(c, K_batch_local, &local, state) || !mesh_size(c, &devices, state))
        return false;
    if (!__builtin_mul_overflow(devices, local, out))
        return true;
    if (state)
        *state = FAILED;
    return too_many(place_of(c, K_batch_local));
}

static void derive_compute(struct checker *c, struct slot *slot)
{
    const struct constant *kind = key_value(c, K_device_kind);
    slot->state = kind ? KNOWN : c->key[K_device_kind].state == OPEN ? OPEN : FAILED;
    if (kind)
        slot->value = (struct constant){ .kind = CONST_WORD, .text = intern(strcmp(kind->text, "cuda") == 0 ? "bf16" : "fp32") };
}

void derive_key(struct checker *c, enum key_id key, struct slot *slot)
{
    int64_t n = 0;
    enum state state = KNOWN;
    if (key == K_precision_compute) {
        derive_compute(c, slot);
        return;
    }
    if (key == K_mesh_dp)
        state = derive_dp(c, &n);
    else if (key == K_batch_global)
        held_sequences(c, &n, &state);
    else if (key == K_run_steps)
        state = whole(c, K_schedule_steps, &n, &state) ? KNOWN : c->key[K_schedule_steps].state;
    else
        state = ABSENT; /* not known, and nothing needs it */
    if (slot->state == BUSY) {
        slot->state = state;
        slot->value = constant_whole(n);
    }
}

/* Rules ------------------------------------------------------------------------------------------------------------------- */

static void check_mesh(struct checker *c)
{
    int64_t fsdp, dp, devices, covered, nodes;
    if (!whole(c, K_mesh_fsdp, &fsdp, NULL) || !whole(c, K_mesh_dp, &dp, NULL) || !mesh_size(c, &covered, NULL) || !c->machines)
        return;
    if (is_elastic(c)) {
        if (key_given(c, K_cluster_devices_per_node))
            complain(place_of(c, K_cluster_devices_per_node), "cluster %s has as many devices as the mesh asks for", c->machines->name);
        else if (whole(c, K_cluster_nodes, &nodes, NULL) && covered % nodes)
            add_note(complain(place_of(c, K_cluster_nodes), "%lld devices do not spread evenly over %lld nodes", (long long)covered, (long long)nodes),
                     place_of(c, K_mesh_fsdp), "the mesh is %lld x %lld", (long long)fsdp, (long long)dp);
        return;
    }
    if (!device_count(c, &devices, NULL) || covered == devices || nodes_unknown(c))
        return;
    struct span at = place_of(c, key_given(c, K_mesh_fsdp) ? K_mesh_fsdp : K_mesh_dp);
    struct diagnostic *d = complain(at, "the mesh covers %lld device%s, the cluster has %lld", (long long)covered, covered == 1 ? "" : "s", (long long)devices);
    note_devices(c, d);
    int64_t below, above;
    if (devices % dp == 0)
        add_help(d, "fsdp = %lld makes %lld", (long long)(devices / dp), (long long)devices);
    else if (devices % fsdp == 0)
        add_help(d, "dp = %lld makes %lld", (long long)(devices / fsdp), (long long)devices);
    else {
        divisors_beside(devices, fsdp, &below, &above);
        int64_t best = above && (!below || above - fsdp < fsdp - below) ? above : below;
        add_help(d, "fsdp = %lld with dp = %lld makes %lld", (long long)best, (long long)(devices / best), (long long)devices);
    }
}

static void check_batch(struct checker *c)
{
    int64_t global, held, local = 1, devices, chunks;
    int64_t sequence, tokens;
    if (whole(c, K_batch_loss_chunks, &chunks, NULL) && whole(c, K_batch_local, &local, NULL) && whole(c, K_batch_sequence, &sequence, NULL) &&
        !__builtin_mul_overflow(local, sequence, &tokens) && tokens % chunks) {
        struct diagnostic *d = complain(place_of(c, K_batch_loss_chunks), "loss_chunks = %lld does not divide the %lld tokens of a micro-batch", (long long)chunks, (long long)tokens);
        add_note(d, place_of(c, K_batch_local), "local = %lld sequences of %lld tokens", (long long)local, (long long)sequence);
        int64_t below, above;
        divisors_beside(tokens, chunks, &below, &above);
        if (above && above != below) add_help(d, "loss_chunks = %lld or %lld", (long long)below, (long long)above);
        else add_help(d, "loss_chunks = %lld", (long long)below);
    }
    local = 1;
    if (key_given(c, K_batch_global) && whole(c, K_batch_global, &global, NULL) && whole(c, K_batch_sequence, &sequence, NULL) &&
        global > (int64_t)500000000 / sequence)
        warn(place_of(c, K_batch_global), "global counts sequences, not tokens: %s of them are %.3g G tokens a step", text_count(global),
             (double)global * (double)sequence * 1e-9);
    if (!key_given(c, K_batch_global) || !whole(c, K_batch_global, &global, NULL) || !held_sequences(c, &held, NULL) || global % held == 0)
        return;
    whole(c, K_batch_local, &local, NULL);
    devices = held / local;
    struct diagnostic *d = complain(place_of(c, K_batch_global), "global = %lld is not a multiple of the %lld sequences that %lld device%s hold at once",
                                    (long long)global, (long long)held, (long long)devices, devices == 1 ? "" : "s");
    add_note(d, place_of(c, K_batch_local), "local = %lld on each of %lld", (long long)local, (long long)devices);
    int64_t more;
    if (global < held)
        add_help(d, "global = %lld", (long long)held);
    else if (!__builtin_add_overflow(global - global % held, held, &more))
        add_help(d, "global = %lld or %lld", (long long)(more - held), (long long)more);
}

/* Keys that the mode makes idle are said to be. */
static void check_checkpoint(struct checker *c)
{
    static const enum key_id with_mode[] = { K_activation_checkpoint_save, K_activation_checkpoint_every, K_activation_checkpoint_layers, K_activation_checkpoint_budget };
    const struct constant *mode = key_value(c, K_activation_checkpoint_mode);
    for (size_t i = 0; mode && i < COUNT_OF(with_mode); i++) {
        bool budget = !strcmp(mode->text, "budget");
        bool works = with_mode[i] == K_activation_checkpoint_budget ? budget
                     : with_mode[i] == K_activation_checkpoint_save ? !strcmp(mode->text, "selective") : strcmp(mode->text, "none") && !budget;
        if (key_given(c, with_mode[i]) && !works)
            add_help(warn(place_of(c, with_mode[i]), "%s has no effect: activation_checkpoint.mode is %s", key_path(with_mode[i]), mode->text),
                     with_mode[i] == K_activation_checkpoint_budget ? "mode = budget" : "mode = selective");
    }
}

/* wsd: what warm-up and decay leave is the stable stretch, and that cannot be negative. */
static void check_decay(struct checker *c, int64_t warmup, int64_t steps)
{
    int64_t decay;
    key_value(c, K_schedule_decay);
    if (c->key[K_schedule_decay].state == ABSENT && !c->broken && !c->absent_is_fine[K_schedule_decay])
        add_help(complain(c->naming[S_schedule].at, "schedule wsd needs the length of its decay"), "schedule wsd { warmup = 1k;  steps = 10k;  decay = 2k }");
    if (steps == 0 || warmup > steps || !whole(c, K_schedule_decay, &decay, NULL) || decay <= steps - warmup)
        return;
    struct diagnostic *d = complain(place_of(c, K_schedule_decay), "a warm-up of %lld steps and a decay of %lld are more than the %lld steps of the schedule",
                                    (long long)warmup, (long long)decay, (long long)steps);
    add_note(d, place_of(c, K_schedule_steps), "%lld steps", (long long)steps);
    add_help(d, "decay = %lld leaves no stable stretch, less leaves one", (long long)(steps - warmup));
}

static void check_schedule(struct checker *c)
{
    const char *name = c->naming[S_schedule].name;
    int64_t warmup = 0, steps = 0;
    bool has_steps = whole(c, K_schedule_steps, &steps, NULL);
    bool constant = !name || strcmp(name, "constant") == 0;
    if (!constant && c->key[K_schedule_steps].state == ABSENT && !c->broken && !c->absent_is_fine[K_schedule_steps])
        add_help(complain(c->naming[S_schedule].at, "schedule %s needs its number of steps", name), "schedule %s { steps = 10k }", name);
    if (has_steps && whole(c, K_schedule_warmup, &warmup, NULL) && warmup > steps)
        add_note(complain(place_of(c, K_schedule_warmup), "the warm-up of %lld steps is longer than the schedule", (long long)warmup),
                 place_of(c, K_schedule_steps), "%lld steps", (long long)steps);
    const struct constant *floor = key_given(c, K_schedule_floor) ? key_value(c, K_schedule_floor) : NULL, *lr = key_value(c, K_optimizer_lr);
    if (floor && lr && !constant && floor->number > 0 && floor->number < 1e-3 && floor->number <= lr->number)
        add_help(warn(place_of(c, K_schedule_floor), "schedule.floor is a fraction of lr: the rate falls to %s", text_number(floor->number * lr->number)),
                 "floor = %s falls to %s", text_format("%.3g", floor->number / lr->number), constant_text(floor));
    if (constant && key_given(c, K_schedule_floor))
        warn(place_of(c, K_schedule_floor), "schedule.floor has no effect: a constant rate does not fall");
    int64_t run = 0;
    if (!constant && has_steps && key_given(c, K_run_steps) && whole(c, K_run_steps, &run, NULL) && run > steps)
        add_note(warn(place_of(c, K_run_steps), "the run goes %lld step%s beyond its schedule: there the rate stays at the floor", (long long)(run - steps), run - steps == 1 ? "" : "s"),
                 place_of(c, K_schedule_steps), "%lld steps", (long long)steps);
    if (name && strcmp(name, "wsd") == 0)
        check_decay(c, warmup, steps);
    else if (key_given(c, K_schedule_decay))
        warn(place_of(c, K_schedule_decay), "schedule.decay has no effect: only wsd has a decay of its own length");
}

static void check_init(struct checker *c)
{
    struct slot *seed = &c->key[K_init_seed], *from = &c->key[K_init_from];
    if (seed->entry && from->entry && seed->layer == from->layer)
        add_note(complain(seed->at, "weights come from a seed or from files, not from both"), from->at, "from files");
}

/* The name of an optimizer or schedule. */
static void check_name(struct checker *c, enum section_id s)
{
    const struct naming *n = &c->naming[s];
    const char *takes = section_rows[s].takes, *list[16];
    bool works;
    if (!n->name)
        return;
    if (!words_find(takes, n->name, &works)) {
        struct diagnostic *d = complain(n->at, "there is no %s '%s'", section_rows[s].path, n->name);
        const char *near = nearest_name(n->name, list, words_list(takes, false, list, (int)COUNT_OF(list)));
        if (near)
            add_help(d, "did you mean '%s'?", near);
        else
            add_help(d, "there is %s", words_text(takes, true));
    } else if (!works) {
        add_help(complain(n->at, "'%s %s' is refused: it does not work yet", section_rows[s].path, n->name), "%s work", words_text(takes, true));
    }
}

static void need(struct checker *c, enum key_id key, const char *example)
{
    key_value(c, key);
    if (c->key[key].state != ABSENT || c->broken || c->absent_is_fine[key])
        return;
    enum section_id s = key_rows[key].section;
    struct span at = section_given(c, s) ? c->section_at[s] : c->plan->kid[0]->at;
    add_help(complain(at, "%s is not given", key_path(key)), "%s", example);
}

static void check_cluster(struct checker *c)
{
    if (!c->machines)
        return;
    const struct constant *kind = key_value(c, K_device_kind);
    struct span at = c->machines->block->kid[0]->at;
    if (c->broken)
        return;
    if (c->key[K_device_kind].state == ABSENT)
        add_help(complain(at, "cluster %s does not say what its devices are", c->machines->name), "device \"name\" { kind = cuda }");
    key_value(c, K_device_memory);
    if (kind && strcmp(kind->text, "cuda") == 0 && c->key[K_device_memory].state == ABSENT && !c->absent_is_fine[K_device_memory])
        add_help(complain(at, "cluster %s does not say how much memory a device has", c->machines->name), "device \"name\" { memory = 80GiB }");
}

void check_together(struct checker *c)
{
    struct span head = c->plan->kid[0]->at;
    if (!c->naming[S_model].name && !c->broken)
        add_help(complain(section_given(c, S_model) ? c->section_at[S_model] : head, "the plan names no model"), "model llama { … }");
    if (!c->naming[S_cluster].name && !c->broken)
        add_help(complain(section_given(c, S_cluster) ? c->section_at[S_cluster] : head, "the plan names no cluster"), "cluster b200 { nodes = 1 }");
    need(c, K_batch_sequence, "batch { sequence = 4096 }");
    need(c, K_batch_local, "batch { local = 1 }");
    check_cluster(c);
    check_name(c, S_optimizer);
    check_name(c, S_schedule);
    check_mesh(c);
    check_checkpoint(c);
    check_batch(c);
    check_schedule(c);
    check_init(c);
}
