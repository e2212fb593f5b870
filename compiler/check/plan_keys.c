/* Every key of a plan with its value, and whether a run may go on with another one. A checkpoint
 * keeps this list; a plan that resumes is compared with it, and `planc diff` says beforehand what
 * would be refused. A key that nobody has thought of counts as mathematics: refusing too much costs
 * an --allow, refusing too little a run. */
#include "base/escape.h"
#include "check/check.h"
#include "check/plan.h"

#include <string.h>

/* Where the work is done, how it is cut into pieces, when a run ends and is saved: the same
 * samples, the same sums except for the order of their terms. */
static const char *const free_sections[] = {"cluster", "mesh", "activation_checkpoint", "run",
                                            "checkpoint"};
/* Files are told by what they hold (the trainer does), not by where they lie. */
static const enum key_id free_keys[] = {K_batch_local,     K_batch_loss_chunks, K_data_train,
                                        K_data_validation, K_data_format,       K_data_tokenizer};

/* In a section or in one below it: "cluster.host" is below "cluster". */
static bool is_below(const char *path, const char *section)
{
    const size_t n = strlen(section);
    return !strncmp(path, section, n) && (path[n] == 0 || path[n] == '.');
}

static bool is_mathematics(const struct plan *p, enum key_id key)
{
    for (size_t i = 0; i < COUNT_OF(free_sections); i++)
        if (is_below(section_rows[key_rows[key].section].path, free_sections[i])) return false;
    for (size_t i = 0; i < COUNT_OF(free_keys); i++)
        if (key == free_keys[i]) return false;
    /* a constant rate does not know its horizon, and only wsd has a decay of its own */
    if (key == K_schedule_steps || key == K_schedule_floor) return p->schedule != SCHEDULE_CONSTANT;
    if (key == K_schedule_warmup_from || key == K_schedule_warmup_to) return p->warmup > 0;
    return (key != K_schedule_decay && key != K_schedule_decay_shape) ||
           p->schedule == SCHEDULE_WSD;
}

/* Keys that are younger than the first checkpoints, with the value that says what was done before
 * there was the key: they are left out, so that an older checkpoint is one of the same plan. */
static bool is_as_before(const struct plan *p, enum key_id key)
{
    return (key == K_data_documents && !p->separate) ||
           (key == K_data_end_token && p->end_token < 0) ||
           (key == K_data_field && !strcmp(p->data_field, "text")) ||
           (key == K_schedule_warmup_from && p->warmup_from == 0) ||
           (key == K_schedule_warmup_to && p->warmup_to == 1) ||
           (key == K_schedule_decay_shape && p->decay_shape == DECAY_LINEAR);
}

static void add_text(resolved_keys *all, const char *path, const char *text, bool mathematics)
{
    struct text t = {0};
    escape_json(&t, text);
    PUSH(all, ((struct resolved_key){path, t.bytes, mathematics}));
}

static void add(resolved_keys *all, const char *path, const struct constant *c, bool mathematics)
{
    struct text t = {0};
    constant_json(&t, c);
    PUSH(all, ((struct resolved_key){path, t.bytes, mathematics}));
}

/* The architecture by its tree, not by its bytes: comments and layout may change. FNV-1a. */
static uint64_t hash_tree(uint64_t h, const struct ast *e)
{
    const char *text = e->text ? e->text : "";
    h = (h ^ ((uint64_t)e->kind + 1)) * 0x100000001b3u;
    for (; *text; text++) h = (h ^ (unsigned char)*text) * 0x100000001b3u;
    for (int i = 0; i < e->n; i++) h = hash_tree((h ^ 0x101) * 0x100000001b3u, e->kid[i]);
    return (h ^ 0x102) * 0x100000001b3u;
}

static const char *architecture_hash(const struct plan *p)
{
    uint64_t h = hash_tree(0xcbf29ce484222325u, p->architecture_body);
    for (int i = 0; i < p->n_constants; i++) {
        struct text t = {0};
        text_add(&t, "%s = ", p->constant[i].name);
        constant_json(&t, &p->constant[i].value);
        for (size_t k = 0; k < t.length; k++) h = (h ^ (unsigned char)t.bytes[k]) * 0x100000001b3u;
    }
    return text_format("%016lx", h);
}

resolved_keys plan_keys(const struct plan *p)
{
    resolved_keys all = {0};
    static const char *const schedule[] = {[SCHEDULE_CONSTANT] = "constant",
                                           [SCHEDULE_COSINE] = "cosine",
                                           [SCHEDULE_LINEAR] = "linear",
                                           [SCHEDULE_WSD] = "wsd"};
    add_text(&all, "model", p->architecture, true);
    add_text(&all, "model.architecture", architecture_hash(p), true);
    for (int i = 0; i < p->n_hyper; i++)
        add(&all, text_format("model.%s", p->hyper[i].name), &p->hyper[i].value, true);
    add_text(&all, "optimizer", "adamw", true);
    add_text(&all, "schedule", schedule[p->schedule], true);
    for (int k = 0; k < KEY_COUNT; k++)
        if (p->has_value[k] && !is_as_before(p, (enum key_id)k) &&
            key_rows[k].section != S_trainer) /* of others' trainers */
            add(&all, key_path((enum key_id)k), &p->value[k], is_mathematics(p, (enum key_id)k));
    for (int i = 0; i < p->n_groups; i++) { /* in order: the last that matches counts */
        struct text t = {0};
        text_add(&t, "[");
        escape_json(&t, p->group[i].pattern);
        if (p->group[i].has_decay) text_add(&t, ", %s", text_number(p->group[i].weight_decay));
        if (p->group[i].has_scale)
            text_add(&t, ", \"lr_scale\", %s", text_number(p->group[i].lr_scale));
        text_add(&t, "]");
        PUSH(&all, ((struct resolved_key){text_format("optimizer.weights[%d]", i), t.bytes, true}));
    }
    if (p->n_sources) { /* in order: of sources that lag alike, the first is next */
        struct text names = {0};
        text_add(&names, "[");
        for (int i = 0; i < p->n_sources; i++) {
            struct text t = {0};
            if (i) text_add(&names, ", ");
            escape_json(&names, p->source[i].name);
            text_add(&t, "[");
            for (int k = 0; k < p->n_stages; k++)
                text_add(&t, "%s%ld", k ? ", " : "", p->source[i].share[k]);
            text_add(&t, "]");
            PUSH(&all,
                 ((struct resolved_key){text_format("data.source[%d].weight", i), t.bytes, true}));
        }
        text_add(&names, "]");
        PUSH(&all, ((struct resolved_key){"data.source", names.bytes, true}));
    }
    return all;
}
