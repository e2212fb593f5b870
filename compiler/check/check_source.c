/* Sources of tokens: `data { source "web" { files = "web-*.bin"; weight = 0.7 } … }`. Like groups
 * of weights they are no section, because there are several. Their weights become whole shares of a
 * period of samples: in each period every source has exactly its share, so nothing is drawn and
 * nothing drifts. */
#include "check/check.h"

#include <string.h>

/* Samples of a period at most. A runtime keeps a few bytes for each. */
enum { PERIOD_LIMIT = 1 << 20, STAGE_LIMIT = 64, SOURCE_LIMIT = 1024 };

static const char *path_of(const struct source *s, enum key_id key)
{
    return intern_format("data.source \"%s\" %s", s->name, key_rows[key].name);
}

void source_collect(struct checker *c, const struct ast *block)
{
    const struct ast *head = block->kid[0], *items = block->kid[1];
    if (head->n != 2 || head->kid[1]->kind != AST_STRING || !head->kid[1]->text[0]) {
        add_help(complain(head->at, "a source of tokens has one name in double quotes"),
                 "source \"web\" { files = \"web-*.bin\";  weight = 0.7 }");
        return;
    }
    struct source s = {.name = head->kid[1]->text, .at = head->at};
    for (int i = 0; i < c->source.n; i++)
        if (c->source.item[i].name == s.name)
            add_note(complain(head->at, "a second source \"%s\"", s.name), c->source.item[i].at,
                     "the first");
    for (int i = 0; i < items->n; i++) {
        const struct ast *item = items->kid[i];
        const enum key_id key =
            item->kind == AST_ENTRY ? key_find(S_source, item->text) : KEY_COUNT;
        struct slot *slot = key == K_source_files    ? &s.files
                            : key == K_source_weight ? &s.weight
                                                     : NULL;
        if (item->kind != AST_ENTRY) {
            complain(item->kid[0]->at, "a source holds entries only");
        } else if (!slot) {
            struct diagnostic *d =
                complain(item->kid[0]->at, "'%s' is not a key of a source", item->text);
            const bool train = !strcmp(item->text, "train") || !strcmp(item->text, "file") ||
                               !strcmp(item->text, "path") || !strcmp(item->text, "paths");
            add_help(d,
                     train                                       ? "files = \"web-*.bin\""
                     : key_find(S_data, item->text) != KEY_COUNT ? "data.%s is one for all sources"
                                                                 : "a source has files and weight",
                     item->text);
        } else if (slot->entry)
            add_note(complain(item->at, "%s is given twice", item->text), slot->at,
                     "the first time");
        else
            *slot = (struct slot){.layer = LAYER_PLAN, .entry = item, .at = item->at};
    }
    PUSH(&c->source, s);
}

void source_refuse_path(struct span at)
{
    add_help(complain(at, "a source is a block with its name, not a path"),
             "data { source \"web\" { files = \"web-*.bin\";  weight = 0.7 } }");
}

/* --set data.train=FILE takes the place of all sources. */
static bool is_replaced(const struct checker *c)
{
    return c->key[K_data_train].entry && c->key[K_data_train].layer == LAYER_SET;
}

static void check_value(struct checker *c, struct source *s, enum key_id key, struct slot *slot)
{
    const struct ast *value = slot->entry ? slot->entry->kid[1] : NULL;
    if (value && (value->kind == AST_ALTERNATIVES || value->kind == AST_RANGE))
        add_help(complain(value->at, "a source's value cannot be left open"),
                 "a constant can stand there, which --set gives another value: weight = share, and "
                 "outside the plan share = 0.7");
    else if (value)
        value_of_key(c, key, slot, path_of(s, key));
}

/* The stages' first steps: 0, then rising. How many; 0 after a diagnostic. */
static int check_stages(struct checker *c)
{
    const struct constant *stages =
        key_given(c, K_data_stages) ? key_value(c, K_data_stages) : NULL;
    if (key_given(c, K_data_stages) && !stages) return 0;
    if (!stages) return 1;
    for (int i = 0; i < stages->n; i++)
        if (!constant_is_whole(&stages->item[i]) ||
            stages->item[i].top <= (i ? stages->item[i - 1].top : -1) ||
            (i == 0 && stages->item[i].top)) {
            add_help(complain(stages->at, "data.stages are the steps with which stages begin, from "
                                          "0 on, each above the one before it"),
                     "stages = [0, 90000]");
            return 0;
        }
    if (stages->n > STAGE_LIMIT) {
        complain(stages->at, "data.stages has %d stages, at most %d are possible", stages->n,
                 STAGE_LIMIT);
        return 0;
    }
    return stages->n;
}

static void check_weight(struct checker *c, struct source *s, int stages)
{
    const struct constant *v = s->weight.state == KNOWN ? &s->weight.value : NULL;
    if (!v) return;
    bool some = false;
    for (int i = 0; i < v->n; i++) some |= v->item[i].number > 0;
    if (v->n != 1 && v->n != stages) {
        struct diagnostic *d =
            complain(s->weight.at, "source \"%s\" has %d weights, and data has %d stage%s", s->name,
                     v->n, stages, stages == 1 ? "" : "s");
        if (key_given(c, K_data_stages))
            add_help(d, "one number for each stage, or one for all");
        else
            add_help(d, "data.stages has the step with which each begins: stages = [0, 90000]");
    } else if (!some)
        add_help(
            complain(s->weight.at, "source \"%s\" has no weight, so none of it is read", s->name),
            "leave it out");
}

void source_check(struct checker *c)
{
    if (!c->source.n) {
        if (key_given(c, K_data_stages))
            add_help(complain(place_of(c, K_data_stages),
                              "data.stages is of sources, and data has none"),
                     "data { source \"web\" { files = \"web-*.bin\";  weight = [0.7, 0.2] } … }");
        return;
    }
    if (key_given(c, K_data_train) && !is_replaced(c)) {
        struct diagnostic *d =
            complain(place_of(c, K_data_train), "data.train and sources are both given");
        add_note(d, c->source.item[0].at, "the first source");
        add_help(d, "move the files into a source: source \"rest\" { files = …;  weight = … }");
    }
    if (c->source.n > SOURCE_LIMIT)
        complain(c->source.item[0].at, "%d sources, at most %d are possible", c->source.n,
                 SOURCE_LIMIT);
    const int stages = check_stages(c);
    for (int i = 0; i < c->source.n; i++) {
        struct source *s = &c->source.item[i];
        if (!s->files.entry)
            add_help(complain(s->at, "source \"%s\" has no files", s->name), "files = \"%s-*.bin\"",
                     s->name);
        if (!s->weight.entry)
            add_help(complain(s->at, "source \"%s\" has no weight", s->name),
                     "weight = 0.5: its part of the samples, beside the other sources' weights");
        check_value(c, s, K_source_files, &s->files);
        check_value(c, s, K_source_weight, &s->weight);
        if (stages) check_weight(c, s, stages);
    }
}

/* ── shares ──────────────────────────────────────────────────────────────────── */

static const struct constant *weight_at(const struct source *s, int stage)
{
    const struct constant *v = &s->weight.value;
    return &v->item[v->n == 1 ? 0 : stage];
}

/* Weights that are fractions of small numbers: shares that are exactly them. False: they are not.
 */
static bool exact_shares(const struct checker *c, int stage, int64_t *share)
{
    int64_t common = 1, divisor = 0, sum = 0;
    for (int i = 0; i < c->source.n; i++) {
        const struct constant *w = weight_at(&c->source.item[i], stage);
        int64_t a = common, b = w->exact ? w->bottom : 0;
        if (!b) return false;
        for (int64_t r; (r = a % b); a = b, b = r) {}
        if (__builtin_mul_overflow(common, w->bottom / b, &common)) return false;
    }
    for (int i = 0; i < c->source.n; i++) {
        const struct constant *w = weight_at(&c->source.item[i], stage);
        if (__builtin_mul_overflow(w->top, common / w->bottom, &share[i])) return false;
        int64_t a = share[i], b = divisor;
        while (b) {
            const int64_t r = a % b;
            a = b;
            b = r;
        }
        divisor = a;
    }
    for (int i = 0; divisor && i < c->source.n; i++) {
        share[i] /= divisor;
        if (__builtin_add_overflow(sum, share[i], &sum)) return false;
    }
    return divisor && sum <= PERIOD_LIMIT;
}

/* Others: the nearest shares of the longest period, the largest remainders up. */
static void near_shares(const struct checker *c, int stage, int64_t *share)
{
    double sum = 0;
    int64_t left = PERIOD_LIMIT;
    for (int i = 0; i < c->source.n; i++) sum += weight_at(&c->source.item[i], stage)->number;
    for (int i = 0; i < c->source.n; i++) {
        const double part = weight_at(&c->source.item[i], stage)->number / sum;
        share[i] = (int64_t)(part * PERIOD_LIMIT);
        left -= share[i];
    }
    while (left > 0) {
        int best = 0;
        double most = -1;
        for (int i = 0; i < c->source.n; i++) {
            const double w = weight_at(&c->source.item[i], stage)->number,
                         rest = w > 0 ? w / sum * PERIOD_LIMIT - (double)share[i] : -1;
            if (rest > most) most = rest, best = i;
        }
        share[best]++;
        left--;
    }
}

void source_resolve(struct checker *c, struct plan *p)
{
    if (!c->source.n || is_replaced(c)) return;
    const struct constant *stages =
        key_given(c, K_data_stages) ? key_value(c, K_data_stages) : NULL;
    const int n = c->source.n;
    int files = 0;
    p->n_stages = stages ? stages->n : 1;
    p->stage_step = TAKE_MANY(int64_t, p->n_stages);
    p->n_sources = n;
    p->source = TAKE_MANY(struct data_source, n);
    for (int k = 0; stages && k < p->n_stages; k++) p->stage_step[k] = stages->item[k].top;
    for (int i = 0; i < n; i++) {
        struct source *s = &c->source.item[i];
        struct data_source *to = &p->source[i];
        const struct constant *v = &s->files.value;
        const bool list = v->kind == CONST_LIST;
        *to = (struct data_source){
            .name = s->name, .n_files = list ? v->n : 1, .share = TAKE_MANY(int64_t, p->n_stages)};
        const char **path = TAKE_MANY(const char *, to->n_files);
        for (int k = 0; k < to->n_files; k++)
            path[k] = path_resolve(c, list ? v->item[k].text : v->text, s->files.entry->kid[1]->at);
        to->files = path;
        files += to->n_files;
    }
    int64_t *share = TAKE_MANY(int64_t, n);
    for (int k = 0; k < p->n_stages; k++) {
        double sum = 0;
        for (int i = 0; i < n; i++) sum += weight_at(&c->source.item[i], k)->number;
        if (!(sum > 0)) {
            complain(c->source.item[0].at, "in stage %d no source has a weight", k);
            return;
        }
        if (!exact_shares(c, k, share)) near_shares(c, k, share);
        for (int i = 0; i < n; i++) {
            p->source[i].share[k] = share[i];
            if (!share[i] && weight_at(&c->source.item[i], k)->number > 0)
                complain(c->source.item[i].weight.at,
                         "source \"%s\" has a weight of less than one sample of %d",
                         c->source.item[i].name, PERIOD_LIMIT);
        }
    }
    const char **all = TAKE_MANY(const char *, files);
    p->n_data_train = 0;
    for (int i = 0; i < n; i++)
        for (int k = 0; k < p->source[i].n_files; k++)
            all[p->n_data_train++] = p->source[i].files[k];
    p->data_train = all;
}
