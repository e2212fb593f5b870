/* `planc diff`: what changes when one plan replaces another. Both ledgers are compared at their own
 * peaks, term by term: parameters, verdicts, bytes; then the predicted steps; and whether a
 * checkpoint of the first resumes under the second, by the rule that the trainer uses
 * (plan_keys). */
#include "commands/command.h"
#include "passes/pipeline.h"
#include "analysis/ledger.h"
#include "predict/prediction.h"

#include <string.h>

struct side {
    const char *path, *name; /* with its settings */
    const struct plan *plan;
    const struct ledger *ledger;
    const struct prediction *prediction; /* NULL: the cluster does not say how fast it is */
};
struct row {
    const char *name;
    int64_t bytes[2];
    const char *formula[2];
};
typedef VECTOR(struct row) row_list;

/* The settings of one side: those before the first plan are for both, those after a plan for that
 * one. */
static struct arguments arguments_of(const struct arguments *a, int side)
{
    struct arguments own = *a;
    memset(&own.set, 0, sizeof own.set);
    for (int i = 0; i < a->set.n; i++)
        if (a->set_words.item[i] == 0 || a->set_words.item[i] == side + 1)
            PUSH(&own.set, a->set.item[i]);
    return own;
}

static const char *side_name(const struct arguments *own, const char *path)
{
    struct text t = {0};
    text_add(&t, "%s", path);
    for (int i = 0; i < own->set.n; i++) text_add(&t, " --set %s", own->set.item[i]);
    return t.bytes;
}

static int read_side(const struct arguments *all, int number, struct side *s)
{
    int status;
    const char *path = all->word.item[number];
    struct arguments own = arguments_of(all, number), *a = &own;
    s->path = path, s->name = side_name(a, path);
    s->plan = command_plan(a, path, &status);
    struct graph *g = s->plan ? pass_lower(s->plan) : NULL;
    if (!g) return s->plan ? EXIT_PLAN : status;
    g = pipeline_run(g, LEVEL_MEMORY);
    if (!g) return EXIT_PLAN;
    s->ledger = ledger_read(s->plan, g);
    struct program *program;
    s->prediction = predict(s->plan, g, &program);
    return s->ledger ? EXIT_FINE : EXIT_ENVIRONMENT;
}

/* A term may be in one plan only. */
static row_list rows_of(const struct side *side)
{
    row_list all = {0};
    for (int s = 0; s < 2; s++)
        for (int i = 0; i < side[s].ledger->term.n; i++) {
            const struct term *t = &side[s].ledger->term.item[i];
            int k = 0;
            while (k < all.n && strcmp(all.item[k].name, t->name)) k++;
            if (k == all.n) PUSH(&all, ((struct row){.name = t->name}));
            all.item[k].bytes[s] = t->bytes, all.item[k].formula[s] = t->formula;
        }
    return all;
}

static const char *change(int64_t bytes)
{
    return bytes == 0
               ? "the same"
               : text_format("%s%s", bytes > 0 ? "+" : "-", text_bytes(bytes > 0 ? bytes : -bytes));
}

static void print_row(const char *name, int64_t a, int64_t b)
{
    printf("  %-14s %14s %14s  %s\n", name, text_bytes(a), text_bytes(b), change(b - a));
}

static void print_words(const char *name, const char *a, const char *b)
{
    printf("  %-14s %14s %14s  %s\n", name, a, b, strcmp(a, b) ? "differs" : "the same");
}

/* ── checkpoints ─────────────────────────────────────────────────────────────── */
/* A key with another value in B, or in one of the two only (NULL: not given). */
struct change {
    const char *key, *value[2];
    bool refused;
};
typedef VECTOR(struct change) change_list;

static const struct resolved_key *find_key(const resolved_keys *all, const char *path)
{
    for (int i = 0; i < all->n; i++)
        if (!strcmp(all->item[i].path, path)) return &all->item[i];
    return NULL;
}

/* Whether such a difference is refused the resuming plan decides; where it lacks the key, the
 * checkpoint's does. */
static change_list changes_of(const struct side *side)
{
    const resolved_keys a = plan_keys(side[0].plan), b = plan_keys(side[1].plan);
    change_list all = {0};
    for (int i = 0; i < b.n; i++) {
        const struct resolved_key *k = &b.item[i], *was = find_key(&a, k->path);
        if (was && !strcmp(was->json, k->json)) continue;
        PUSH(&all, ((struct change){k->path, {was ? was->json : NULL, k->json}, k->mathematics}));
    }
    for (int i = 0; i < a.n; i++) {
        const struct resolved_key *k = &a.item[i];
        if (!find_key(&b, k->path))
            PUSH(&all, ((struct change){k->path, {k->json, NULL}, k->mathematics}));
    }
    return all;
}

static int refused_of(const change_list *all)
{
    int n = 0;
    for (int i = 0; i < all->n; i++) n += all->item[i].refused;
    return n;
}

static void print_changes(const struct side *side)
{
    const change_list all = changes_of(side);
    printf("  a checkpoint of A %s\n", refused_of(&all)
                                           ? "is refused by B: other mathematics. --allow KEY of "
                                             "the trainer takes it all the same"
                                           : "resumes under B: the same samples in the same order");
    for (int refused = 1; refused >= 0; refused--)
        for (int i = 0; i < all.n; i++) {
            const struct change *c = &all.item[i];
            if (c->refused == refused)
                printf("      %s %s: %s in A, %s in B\n", refused ? "refused" : "differs", c->key,
                       c->value[0] ? c->value[0] : "not given",
                       c->value[1] ? c->value[1] : "not given");
        }
}

static json_t *changes_json(const struct side *side)
{
    const change_list all = changes_of(side);
    json_t *list = json_array();
    for (int i = 0; i < all.n; i++) {
        const struct change *c = &all.item[i];
        json_t *o = json_pack("{s:s, s:b}", "key", c->key, "refused", c->refused);
        for (int s = 0; s < 2; s++)
            if (c->value[s])
                json_object_set_new(o, s ? "b" : "a",
                                    json_loads(c->value[s], JSON_DECODE_ANY, NULL));
        json_array_append_new(list, o);
    }
    return json_pack("{s:b, s:o}", "resumes", refused_of(&all) == 0, "changes", list);
}

/* ── speed ───────────────────────────────────────────────────────────────────── */
static double step_seconds(const struct side *s) { return (double)s->prediction->step * 1e-12; }

static double tokens_per_second(const struct side *s)
{
    return (double)(s->plan->global * s->plan->sequence) / step_seconds(s);
}

static const char *rounded_count(double x) { return text_count((int64_t)(x + 0.5)); }

static void print_speed_row(const char *name, const char *(*text)(double x), double a, double b)
{
    printf("  %-14s %14s %14s  %s\n", name, text(a), text(b),
           a > 0 ? text_format("%+.1f %%", 100 * (b / a - 1)) : "");
}

static void print_speed(const struct side *s)
{
    for (int i = 0; i < 2; i++)
        if (!s[i].prediction) {
            printf("  speed not known: cluster %s of %s does not say how fast it is\n",
                   s[i].plan->cluster.name, s[i].path);
            return;
        }
    print_speed_row("step", text_seconds, step_seconds(&s[0]), step_seconds(&s[1]));
    print_speed_row("tokens/s", rounded_count, tokens_per_second(&s[0]), tokens_per_second(&s[1]));
    print_speed_row("exposed", text_seconds, (double)s[0].prediction->exposed_all * 1e-12,
                    (double)s[1].prediction->exposed_all * 1e-12);
}

static json_t *speed_json(const struct side *s)
{
    if (!s->prediction) return json_null();
    return json_pack("{s:f, s:f, s:f}", "step_seconds", step_seconds(s), "tokens_per_second",
                     tokens_per_second(s), "exposed_comm_seconds",
                     (double)s->prediction->exposed_all * 1e-12);
}

/* ── output ──────────────────────────────────────────────────────────────────── */
static void print_text(const struct side *s)
{
    const struct ledger *a = s[0].ledger, *b = s[1].ledger;
    printf("A %s\nB %s\n", s[0].name, s[1].name);
    printf("  %-14s %14s %14s  %s\n", "", "A", "B", "B against A");
    print_words("parameters", text_count(a->parameters), text_count(b->parameters));
    print_words("active", text_count(a->active_parameters), text_count(b->active_parameters));
    print_words("devices", text_count(a->devices), text_count(b->devices));
    print_words("verdict", verdict_names[a->verdict], verdict_names[b->verdict]);
    print_row("limit", a->limit_bytes, b->limit_bytes);
    print_row("peak", a->peak_bytes, b->peak_bytes);
    print_row("arena", a->arena_bytes, b->arena_bytes);
    row_list all = rows_of(s);
    int same = 0;
    printf("  terms at the peak: A at %s, B at %s\n", a->peak_at, b->peak_at);
    for (int i = 0; i < all.n; i++) {
        const struct row *r = &all.item[i];
        bool alike = r->bytes[0] == r->bytes[1];
        same += alike;
        if (alike) continue;
        print_row(r->name, r->bytes[0], r->bytes[1]);
        for (int k = 0; k < 2; k++)
            if (r->formula[k] && (!r->formula[!k] || strcmp(r->formula[k], r->formula[!k])))
                printf("      %c %s\n", 'A' + k, r->formula[k]);
    }
    printf("  %d of %d terms are the same\n", same, all.n);
    print_speed(s);
    print_changes(s);
}

static json_t *side_json(const struct side *s) { return ledger_json(s->path, s->ledger, false); }

static void print_json(const struct side *s)
{
    row_list all = rows_of(s);
    json_t *list = json_array();
    for (int i = 0; i < all.n; i++) {
        const struct row *r = &all.item[i];
        json_t *o = json_pack("{s:s, s:I, s:I}", "name", r->name, "a_bytes",
                              (json_int_t)r->bytes[0], "b_bytes", (json_int_t)r->bytes[1]);
        if (r->formula[0]) json_object_set_new(o, "a_formula", json_string(r->formula[0]));
        if (r->formula[1]) json_object_set_new(o, "b_formula", json_string(r->formula[1]));
        if (r->bytes[0] != r->bytes[1]) json_array_append_new(list, o);
    }
    json_t *o =
        json_pack("{s:o, s:o, s:o}", "a", side_json(&s[0]), "b", side_json(&s[1]), "memory", list);
    json_object_set_new(o, "speed",
                        json_pack("{s:o, s:o}", "a", speed_json(&s[0]), "b", speed_json(&s[1])));
    json_object_set_new(o, "checkpoint", changes_json(s));
    printf("%s\n", json_dumps(o, JSON_INDENT(2)));
}

int command_diff(const struct arguments *a)
{
    struct side side[2];
    if (a->word.n != 2) return command_fail(EXIT_USAGE, "diff takes two plans, not %d", a->word.n);
    json_in_arena();
    for (int i = 0; i < 2; i++) {
        int status = read_side(a, i, &side[i]);
        if (status != EXIT_FINE) return status;
    }
    if (a->json)
        print_json(side);
    else
        print_text(side);
    return EXIT_FINE;
}
