/* Rules about training: schedules that end before they begin, rates that make training diverge,
 * data that cannot hold the vocabulary. An impossible value is an error. A possible value that is
 * rarely meant is a warning that says what it will do. */
#include "check/check.h"

#include <stdlib.h>
#include <string.h>

/* The name of an optimizer or schedule. */
static void check_name(struct checker *c, enum section_id s)
{
    const struct naming *n = &c->naming[s];
    const char *takes = section_rows[s].takes, *list[16];
    bool works;
    if (!n->name || strchr(n->name, '-')) /* no name; the lexer has reported it */
        return;
    if (!words_find(takes, n->name, &works)) {
        struct diagnostic *d =
            complain(n->at, "there is no %s '%s'", section_rows[s].path, n->name);
        const char *near = section_name_meant(c, s, n->name);
        near =
            near ? near
                 : nearest_name(n->name, list, words_list(takes, false, list, (int)COUNT_OF(list)));
        if (near)
            add_help(d, "did you mean '%s'?", near);
        else
            add_help(d, "there is %s", words_text(takes, true));
    } else if (!works) {
        add_help(complain(n->at, "'%s %s' is refused: it does not work yet", section_rows[s].path,
                          n->name),
                 "%s work", words_text(takes, true));
    }
}

/* wsd: the stable phase is what warm-up and decay leave, and cannot be negative. */
static void check_decay(struct checker *c, int64_t warmup, int64_t steps)
{
    int64_t decay;
    key_value(c, K_schedule_decay);
    if (c->key[K_schedule_decay].state == ABSENT && !c->broken &&
        !c->absent_is_fine[K_schedule_decay])
        add_help(complain(c->naming[S_schedule].at, "schedule wsd needs the length of its decay"),
                 "schedule wsd { warmup = 1k;  steps = 10k;  decay = 2k }");
    if (!whole_value(c, K_schedule_decay, &decay, NULL)) return;
    const enum key_id of_decay[] = {K_schedule_floor, K_schedule_decay_shape};
    for (size_t i = 0; decay == 0 && i < COUNT_OF(of_decay); i++)
        if (key_given(c, of_decay[i]) && !key_given(c, K_run_steps))
            add_note(warn(idle_place(&c->key[of_decay[i]]),
                          "%s has no effect: the rate does not decay", key_path(of_decay[i])),
                     place_of(c, K_schedule_decay), "a decay of no steps");
    if (steps == 0 || warmup > steps || decay <= steps - warmup) return;
    struct diagnostic *d = complain(
        place_of(c, K_schedule_decay),
        "a warm-up of %lld steps and a decay of %lld are more than the %lld steps of the schedule",
        (long long)warmup, (long long)decay, (long long)steps);
    add_note(d, place_of(c, K_schedule_steps), "%lld steps", (long long)steps);
    add_help(d, "decay = %lld leaves no stable stretch, less leaves one",
             (long long)(steps - warmup));
}

static void check_schedule(struct checker *c)
{
    const char *name = c->naming[S_schedule].name;
    int64_t warmup = 0, steps = 0;
    bool has_steps = whole_value(c, K_schedule_steps, &steps, NULL);
    bool constant = !name || !strcmp(name, "constant");
    if (!constant && c->key[K_schedule_steps].state == ABSENT && !c->broken &&
        !c->absent_is_fine[K_schedule_steps])
        add_help(complain(c->naming[S_schedule].at, "schedule %s needs its number of steps", name),
                 "schedule %s { steps = 10k }", name);
    if (has_steps && whole_value(c, K_schedule_warmup, &warmup, NULL) && warmup > steps) {
        struct diagnostic *d =
            complain(place_of(c, K_schedule_warmup),
                     "the warm-up of %lld steps is longer than the schedule", (long long)warmup);
        add_note(d, place_of(c, K_schedule_steps), "%lld steps", (long long)steps);
        add_help(d, "schedule.steps counts the warm-up too: warmup = %lld, or more steps",
                 (long long)(steps > 100 ? steps / 100 : steps > 1));
    }
    for (int i = 0; i < 2; i++) { /* 1T: the tokens of the whole run */
        enum key_id key = i ? K_run_steps : K_schedule_steps;
        int64_t many = 0;
        if (key_given(c, key) && whole_value(c, key, &many, NULL) && many > 1000000000)
            add_help(warn(place_of(c, key), "%s counts steps, not tokens: %s of them",
                          key_path(key), text_count(many)),
                     "steps = tokens / (the tokens of one step, which `planc check` prints)");
    }
    const struct constant *floor = key_given(c, K_schedule_floor) ? key_value(c, K_schedule_floor)
                                                                  : NULL,
                          *lr = key_value(c, K_optimizer_lr);
    if (floor && lr && !constant && floor->number > 0 && floor->number < 1e-3 &&
        floor->number <= lr->number)
        add_help(warn(place_of(c, K_schedule_floor),
                      "schedule.floor is a fraction of lr: the rate falls to %s",
                      text_number(floor->number * lr->number)),
                 "floor = %s falls to %s", text_format("%.3g", floor->number / lr->number),
                 constant_text(floor));
    if (constant && key_given(c, K_schedule_floor))
        add_help(warn(idle_place(&c->key[K_schedule_floor]),
                      "schedule.floor has no effect: a constant rate does not fall"),
                 "schedule cosine { … } falls to it, and so do linear and wsd");
    int64_t run = 0;
    if (!constant && has_steps && key_given(c, K_run_steps) &&
        whole_value(c, K_run_steps, &run, NULL) && run > steps)
        add_note(
            warn(place_of(c, K_run_steps),
                 "the run goes %lld step%s beyond its schedule: there the rate stays at the floor",
                 (long long)(run - steps), run - steps == 1 ? "" : "s"),
            place_of(c, K_schedule_steps), "%lld steps", (long long)steps);
    const enum key_id of_warmup[] = {K_schedule_warmup_from, K_schedule_warmup_to};
    for (size_t i = 0; i < COUNT_OF(of_warmup); i++)
        if (key_given(c, of_warmup[i]) && whole_value(c, K_schedule_warmup, &warmup, NULL) &&
            warmup == 0)
            warn(idle_place(&c->key[of_warmup[i]]), "%s has no effect: the warm-up has no steps",
                 key_path(of_warmup[i]));
    if (key_given(c, K_schedule_decay_shape) && (!name || strcmp(name, "wsd")))
        warn(idle_place(&c->key[K_schedule_decay_shape]),
             "schedule.decay_shape has no effect: only wsd has a decay of its own shape");
    if (key_given(c, K_run_steps) && whole_value(c, K_run_steps, &run, NULL) && run < warmup)
        add_note(
            warn(place_of(c, K_run_steps),
                 "the run ends after %lld steps, within its warm-up: the rate never reaches lr",
                 (long long)run),
            place_of(c, K_schedule_warmup), "a warm-up of %lld steps", (long long)warmup);
    if (name && !strcmp(name, "wsd"))
        check_decay(c, warmup, steps);
    else if (key_given(c, K_schedule_decay))
        warn(idle_place(&c->key[K_schedule_decay]),
             "schedule.decay has no effect: only wsd has a decay of its own length");
}

/* ── Rates ───────────────────────────────────────────────────────────────────── */

/* A step of AdamW moves a weight by about lr, whatever the gradient, so its size can be judged
 * without knowing the model. */
static void check_rate(struct checker *c)
{
    const struct constant *lr = key_given(c, K_optimizer_lr) ? key_value(c, K_optimizer_lr) : NULL;
    if (lr && lr->number == 0)
        add_help(warn(c->key[K_optimizer_lr].at, "lr = 0 moves no weight: nothing is trained"),
                 "the default is lr = %s", key_rows[K_optimizer_lr].fallback);
    if (!lr || lr->number < 0.05) return;
    struct span at = c->key[K_optimizer_lr].at;
    double digit = lr->number;
    while (digit >= 10) digit /= 10;
    bool sure = lr->number > 1;
    struct diagnostic *d =
        sure
            ? complain(at,
                       "lr = %.4g moves every weight by about %.4g in a step: no run survives that",
                       lr->number, lr->number)
            : warn(at, "lr = %s moves every weight by about %s in a step; 1e-4 to 1e-2 are usual",
                   constant_text(lr), constant_text(lr));
    if (sure) add_help(d, "lr = %.3ge-4 or %.3ge-3", digit, digit);
}

/* A number that FP32 rounds to 0 is not the small number that was meant. */
static void check_small(struct checker *c, enum key_id key)
{
    const struct constant *v = key_given(c, key) ? key_value(c, key) : NULL;
    if (v && v->kind == CONST_NUMBER && v->number > 0 && !((float)v->number > 0))
        complain(c->key[key].at, "%s = %s is 0 in FP32, the type in which it is used",
                 key_path(key), constant_text(v));
}

static void check_optimizer(struct checker *c)
{
    static const enum key_id small[] = {K_optimizer_lr, K_optimizer_eps, K_optimizer_clip,
                                        K_optimizer_weight_decay};
    for (size_t i = 0; i < COUNT_OF(small); i++) check_small(c, small[i]);
    const struct constant *betas =
        key_given(c, K_optimizer_betas) ? key_value(c, K_optimizer_betas) : NULL;
    const struct constant *eps =
        key_given(c, K_optimizer_eps) ? key_value(c, K_optimizer_eps) : NULL;
    const struct constant *decay =
        key_given(c, K_optimizer_weight_decay) ? key_value(c, K_optimizer_weight_decay) : NULL;
    check_rate(c);
    if (betas && betas->item[0].number > betas->item[1].number)
        add_help(warn(c->key[K_optimizer_betas].at,
                      "the first moment is remembered longer than the second"),
                 "the usual order is betas = [%s, %s]", constant_text(&betas->item[1]),
                 constant_text(&betas->item[0]));
    if (eps && eps->number > 1e-3)
        warn(c->key[K_optimizer_eps].at,
             "eps = %s is added to a root that is about as large as a gradient: most steps become "
             "smaller",
             constant_text(eps));
    if (decay && decay->number > 1)
        warn(c->key[K_optimizer_weight_decay].at,
             "weight_decay = %s takes lr x %s off every weight in every step; 0.1 is usual",
             constant_text(decay), constant_text(decay));
}

/* ── Data ────────────────────────────────────────────────────────────────────── */

/* "0.7 web_document 0.3 code_document", as Megatron's --data-path has it, "0.7" in a list, or
 * "a.bin:0.7,b.bin:0.3". */
static bool has_weight(const struct constant *v)
{
    if (v->kind != CONST_STRING || !v->text[0]) return false;
    char *end;
    const double weight = strtod(v->text, &end);
    if (end != v->text && (*end == ' ' || !*end) && weight > 0) return true;
    const char *colon = strrchr(v->text, ':');
    if (!colon || !colon[1]) return false;
    const double behind = strtod(colon + 1, &end);
    return end != colon + 1 && !*end && behind > 0 && behind <= 100;
}

/* "s3://bucket/x", "hf://meta/llama": nothing is downloaded. */
static void check_place(struct checker *c, enum key_id key)
{
    const struct constant *v = key_given(c, key) ? key_value(c, key) : NULL;
    const struct constant *one = v && v->kind == CONST_LIST && v->n ? &v->item[0] : v;
    for (int i = 0; key == K_data_train && v && i < (v->kind == CONST_LIST ? v->n : 1); i++)
        if (has_weight(v->kind == CONST_LIST ? &v->item[i] : v)) {
            add_help(complain(c->key[key].entry->kid[1]->at, "a name of a file has no weight"),
                     "%s", foreign_advice("mixture"));
            return;
        }
    if (!one || one->kind != CONST_STRING || !strstr(one->text, "://")) return;
    struct diagnostic *d =
        complain(c->key[key].entry->kid[1]->at,
                 "%s names a place elsewhere, and planc downloads nothing", key_path(key));
    add_help(d, key == K_init_from
                    ? "download it first, then init { from = \"folder\" }"
                    : "copy the files first, then data { train = \"folder/*.bin\" }");
}

/* An id of a key that the vocabulary does not have, so that it `does` nothing ("masks"); else NULL.
 */
static struct diagnostic *beyond_vocabulary(struct checker *c, enum key_id key, const char *does,
                                            struct declared *vocab)
{
    const struct constant *id = key_value(c, key), *size = vocab ? hyper_value(c, vocab) : NULL;
    if (!size || !constant_is_whole(size) || !id || id->kind != CONST_NUMBER || id->top < size->top)
        return NULL;
    struct diagnostic *d = complain(
        place_of(c, key), "%s = %lld %s nothing: the vocabulary has %lld ids, 0 to %lld",
        key_path(key), (long long)id->top, does, (long long)size->top, (long long)size->top - 1);
    add_note(d, vocab->slot.at, "vocab is %lld", (long long)size->top);
    return d;
}

/* Token ids that the format of the files cannot hold. */
static void check_data(struct checker *c)
{
    check_place(c, K_data_train);
    check_place(c, K_data_validation);
    check_place(c, K_init_from);
    struct declared *vocab = hyper_find(c, "vocab");
    const struct constant *ignore = key_value(c, K_data_ignore),
                          *order = key_value(c, K_data_order),
                          *format = key_given(c, K_data_train) ? key_value(c, K_data_format) : NULL;
    if (key_given(c, K_data_field) && format && strcmp(format->text, "jsonl") &&
        strcmp(format->text, "auto"))
        add_help(warn(idle_place(&c->key[K_data_field]),
                      "data.field has no effect: format = %s has no "
                      "fields",
                      format->text),
                 "format = jsonl reads JSON lines");
    if (key_given(c, K_data_seed) && order && !strcmp(order->text, "sequential"))
        add_help(warn(idle_place(&c->key[K_data_seed]),
                      "data.seed has no effect: samples are taken in the order of the files"),
                 "order = shuffled draws an order from it");
    const struct constant *size = vocab ? hyper_value(c, vocab) : NULL;
    struct diagnostic *no_mask = beyond_vocabulary(c, K_data_ignore, "masks", vocab);
    if (no_mask)
        add_help(no_mask,
                 "an id that the files hold, such as that of padding; ignore = off masks none");
    const struct constant *end = key_value(c, K_data_end_token),
                          *documents = key_value(c, K_data_documents);
    if (end && end->kind == CONST_NUMBER && documents && !strcmp(documents->text, "packed"))
        add_help(complain(place_of(c, K_data_end_token),
                          "data.end_token has no effect: documents are packed"),
                 "documents = separate keeps apart what it ends");
    beyond_vocabulary(c, K_data_end_token, "ends", vocab);
    if (size && constant_is_whole(size) && size->top > INT32_MAX)
        complain(vocab->slot.at, "vocab = %s: planc counts token ids in 32 bits, at most %s",
                 text_count(size->top), text_count(INT32_MAX));
    const int64_t most = !format                           ? INT64_MAX
                         : !strcmp(format->text, "bytes")  ? UINT8_MAX
                         : !strcmp(format->text, "uint16") ? UINT16_MAX
                                                           : UINT32_MAX;
    if (ignore && ignore->kind == CONST_NUMBER && ignore->top > most &&
        !(size && ignore->top >= size->top))
        warn(place_of(c, K_data_ignore), "data.ignore = %s masks nothing: %s holds ids up to %s",
             text_count(ignore->top), format->text, text_count(most));
    if (!size || !constant_is_whole(size) || !format) return;
    bool bytes = !strcmp(format->text, "bytes"),
         wide = !strcmp(format->text, "uint16") && size->top > 65536;
    bytes = bytes || !strcmp(format->text, "jsonl");
    if (wide) {
        struct span at = c->key[key_given(c, K_data_format) ? K_data_format : K_data_train].at;
        struct diagnostic *d =
            warn(at, "uint16 holds token ids up to 65,535, the vocabulary has %s",
                 text_count(size->top));
        add_note(d, vocab->slot.at, "vocab is %lld", (long long)size->top);
        add_help(d, "format = uint32, if the files are so");
    } else if (bytes && size->top < 256) {
        struct diagnostic *d =
            warn(c->key[K_data_format].at.file ? c->key[K_data_format].at : c->key[K_data_train].at,
                 "a byte is a token id up to 255, the vocabulary has %lld: the trainer refuses "
                 "what is beyond",
                 (long long)size->top);
        add_note(d, vocab->slot.at, "vocab is %lld", (long long)size->top);
        add_help(d, "vocab = 256");
        /* 256, and a few more that are rounded up to or reserved */
    } else if (bytes && size->top > 1024) {
        struct diagnostic *d =
            warn(c->key[K_data_format].at.file ? c->key[K_data_format].at : c->key[K_data_train].at,
                 "a byte is a token id up to 255, the vocabulary has %s: the rest never occurs",
                 text_count(size->top));
        add_note(d, vocab->slot.at, "vocab is %lld", (long long)size->top);
        add_help(d, "format = uint16 or uint32 for files of token ids; vocab = 256 for bytes");
    }
}

/* ── Hyper-parameters that depend on each other, whatever the family ─────────── */

/* NULL: the family has none of that name, or its value is not known. */
static const struct constant *hyper_number(struct checker *c, const char *name, struct span *at)
{
    struct declared *d = hyper_find(c, name);
    const struct constant *v = d ? hyper_value(c, d) : NULL;
    if (d) *at = d->slot.at;
    return v && v->kind == CONST_NUMBER ? v : NULL;
}

static bool hyper_given(struct checker *c, const char *name)
{
    struct declared *d = hyper_find(c, name);
    return d && d->slot.entry;
}

/* Scaling of rotary positions: what belongs to a way that is not taken has no effect. */
static void check_idle_rope(struct checker *c, const char *const *others, size_t n,
                            const char *switch_)
{
    for (size_t i = 0; i < n; i++)
        if (hyper_given(c, others[i]))
            add_help(warn(idle_place(&hyper_find(c, others[i])->slot),
                          "model.%s has no effect: %s is 1, which scales nothing", others[i],
                          switch_),
                     "%s",
                     !strcmp(switch_, "rope_yarn") ? "rope_yarn = 4 is Qwen3's"
                                                   : "rope_factor = 8 is Llama 3.1's");
}

/* llama3 scaling is between two wavelengths, and only when factor is above 1; YaRN when yarn is. */
static void check_rope(struct checker *c)
{
    static const char *const of_llama3[] = {"rope_low", "rope_high", "rope_original"},
                             *const of_yarn[] = {"rope_fast", "rope_slow", "rope_magnitude",
                                                 "rope_original"};
    struct span factor_at = {0}, low_at = {0}, high_at = {0}, yarn_at = {0}, magnitude_at = {0};
    const struct constant *yarn = hyper_number(c, "rope_yarn", &yarn_at),
                          *magnitude = hyper_number(c, "rope_magnitude", &magnitude_at);
    const bool by_yarn = yarn && yarn->number > 1;
    if (yarn && yarn->number < 1)
        add_help(complain(yarn_at, "model.rope_yarn must be at least 1, this is %s",
                          constant_text(yarn)),
                 "it divides frequencies, so that longer sequences can be told apart; 1 scales "
                 "nothing");
    if (magnitude && magnitude->number < 0)
        complain(magnitude_at, "model.rope_magnitude must be at least 0, this is %s",
                 constant_text(magnitude));
    /* rope_original belongs to both ways, and is idle with neither */
    if (yarn && !by_yarn)
        check_idle_rope(c, of_yarn, COUNT_OF(of_yarn) - (hyper_find(c, "rope_factor") != NULL),
                        "rope_yarn");
    const struct constant *factor = hyper_number(c, "rope_factor", &factor_at),
                          *low = hyper_number(c, "rope_low", &low_at),
                          *high = hyper_number(c, "rope_high", &high_at);
    if (!factor || !low || !high) return;
    if (factor->number < 1)
        add_help(complain(factor_at, "model.rope_factor must be at least 1, this is %s",
                          constant_text(factor)),
                 "it divides frequencies, so that longer sequences can be told apart; 1 scales "
                 "nothing");
    if (factor->number >= 1 && factor->number <= 1)
        check_idle_rope(c, of_llama3, COUNT_OF(of_llama3) - by_yarn, "rope_factor");
    if (factor->number > 1 && by_yarn)
        add_note(complain(yarn_at,
                          "model.rope_yarn = %s and rope_factor = %s: rotary positions "
                          "are scaled in one way",
                          constant_text(yarn), constant_text(factor)),
                 factor_at, "rope_factor");
    if (factor->number > 1 && low->number >= high->number)
        add_note(complain(low_at, "model.rope_low = %s is not below rope_high = %s",
                          constant_text(low), constant_text(high)),
                 high_at, "rope_high");
}

/* Dense layers among sparse ones have a width of their own. */
static void check_dense(struct checker *c)
{
    struct declared *dense = hyper_find(c, "dense_layers"), *first = hyper_find(c, "first_dense");
    struct span at = {0};
    if (!dense) dense = first;
    const struct constant *which = dense ? hyper_value(c, dense) : NULL,
                          *ffn = hyper_number(c, "ffn", &at);
    if (!which || !ffn) return;
    if (which->kind != (dense == first ? CONST_NUMBER : CONST_LIST)) return;
    const bool any = dense == first ? which->number > 0 : which->n > 0;
    if (any && ffn->number <= 0)
        add_help(complain(hyper_given(c, "ffn") ? at : dense->slot.at,
                          "%s = %s, and ffn, the width of these layers, is not given", dense->name,
                          constant_text(which)),
                 "ffn = 4 * hidden, or what the model was trained with");
    else if (!any && hyper_given(c, "ffn") && ffn->number > 0)
        add_help(warn(idle_place(&hyper_find(c, "ffn")->slot),
                      "model.ffn has no effect: no layer is dense"),
                 "%s makes the first one dense; expert_width is that of experts",
                 dense == first ? "first_dense = 1" : "dense_layers = [0]");
}

/* The bias of routers has a rate only where there is one. */
static void check_balance(struct checker *c)
{
    struct declared *on = hyper_find(c, "balance_bias");
    const struct constant *is = on ? hyper_value(c, on) : NULL;
    if (is && is->kind == CONST_TRUTH && !is->truth && hyper_given(c, "balance_rate"))
        add_help(warn(idle_place(&hyper_find(c, "balance_rate")->slot),
                      "model.balance_rate has no effect: balance_bias is off"),
                 "balance_bias = on");
}

static void check_every(struct checker *c)
{
    struct span at = {0};
    const struct constant *layers = hyper_number(c, "layers", &at),
                          *every = key_given(c, K_activation_checkpoint_every)
                                       ? key_value(c, K_activation_checkpoint_every)
                                       : NULL;
    if (layers && every && every->top > 1 && every->number >= layers->number)
        add_note(warn(place_of(c, K_activation_checkpoint_every),
                      "activation_checkpoint.every = %s: of %s layers only the first is "
                      "checkpointed",
                      constant_text(every), constant_text(layers)),
                 at, "layers is %s", constant_text(layers));
}

/* Files without steps, or steps without files, would validate nothing. */
static void check_validation(struct checker *c)
{
    const bool files = key_given(c, K_data_validation), every = key_given(c, K_run_validate_every),
               steps = key_given(c, K_run_validate_steps);
    if (files && !every)
        add_help(complain(place_of(c, K_data_validation),
                          "data.validation is given, but not when to validate"),
                 "run { validate_every = 1000 }");
    else if (!files && (every || steps))
        add_help(complain(place_of(c, every ? K_run_validate_every : K_run_validate_steps),
                          "there are no files to validate on"),
                 "data { validation = \"other.bin\" }");
    int64_t n = 0, end = 0;
    if (files && every && whole_value(c, K_run_validate_every, &n, NULL) &&
        whole_value(c, K_run_steps, &end, NULL) && n > end)
        warn(place_of(c, K_run_validate_every),
             "run.validate_every = %s: the run ends after %s steps, so nothing is validated",
             text_count(n), text_count(end));
}

/* A section of checkpoints that writes none. */
static void check_saving(struct checker *c)
{
    const struct constant *keep =
        key_given(c, K_checkpoint_keep) ? key_value(c, K_checkpoint_keep) : NULL;
    if (section_given(c, S_checkpoint) && !key_given(c, K_checkpoint_directory) && !error_count())
        add_help(warn(c->section_at[S_checkpoint],
                      "checkpoint.directory is not given: nothing is saved, unless the trainer is "
                      "told where by --checkpoint-dir"),
                 "directory = \"checkpoints\"");
    if (keep && keep->kind == CONST_WORD && key_given(c, K_checkpoint_keep_every))
        add_help(warn(idle_place(&c->key[K_checkpoint_keep_every]),
                      "checkpoint.keep_every has no effect: keep = all keeps every checkpoint"),
                 "keep = 3 keeps the newest three, and those at multiples of keep_every");
}

void check_training(struct checker *c)
{
    check_name(c, S_optimizer);
    check_name(c, S_schedule);
    check_schedule(c);
    check_optimizer(c);
    check_data(c);
    check_validation(c);
    check_saving(c);
    check_rope(c);
    check_dense(c);
    check_balance(c);
    check_every(c);
}
