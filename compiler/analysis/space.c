/* Judges every point of a space (every combination of alternatives). The memory of a point comes
 * from its own layout, as for a single plan. Points of one structure (family.c) are compiled once
 * and then only laid out, each at its own sizes. Keys that change no byte (replicas, global batch,
 * rates, seeds) do not start a new family. The arena is reset between points, so a large space
 * costs time and not memory. */
#include "base/escape.h"
#include "analysis/space.h"
#include "passes/budget.h"
#include "analysis/ledger.h"
#include "predict/points.h"
#include "ir/cost.h"

#include <stdlib.h>
#include <string.h>

/* why: NULL unless the point is impossible */
struct judged {
    int64_t peak_bytes, step_picoseconds; /* 0: the cluster does not say how fast it is */
    enum verdict verdict;
    const char *why;
};
/* structure: NULL when the architecture cannot be compiled at the sizes that one is read off. */
struct known {
    const char *key;
    struct structure *structure;
};
/* What structures of one model on one kind of machine share. */
struct shared {
    const char *key;
    struct points *points;
};
struct judging {
    const struct arguments *arguments;
    const struct space *space;
    struct known *table;
    size_t room;
    VECTOR(struct shared) shared;
};

/* Keys that change the structure. Others change no byte of a layout (replicas, rates), or only a
 * family's numbers. */
static bool changes_structure(const char *key)
{
    static const char *const none[] = {"mesh.dp",
                                       "mesh.fsdp",
                                       "batch.local",
                                       "batch.loss_chunks",
                                       "batch.global",
                                       "cluster.nodes",
                                       "cluster.devices_per_node",
                                       "optimizer.lr",
                                       "optimizer.betas",
                                       "optimizer.eps",
                                       "optimizer.weight_decay",
                                       "init.seed",
                                       "data.seed"};
    for (size_t i = 0; i < COUNT_OF(none); i++)
        if (!strcmp(key, none[i])) return false;
    return strncmp(key, "schedule.", 9) && strncmp(key, "run.", 4) &&
           strncmp(key, "checkpoint.", 11) && strncmp(key, "cluster.link", 12) &&
           strncmp(key, "cluster.device.", 15);
}

static const char *family_key(const struct space *s, const int *choice, const struct plan *p)
{
    struct text t = {0};
    text_add(&t, "%d %d %s %s %s ", p->loss_chunks > 1, p->fsdp > 1, p->checkpoint_layers,
             p->checkpoint_save, p->checkpoint_rest_save);
    for (int k = 0; k < s->n_axes; k++)
        if (changes_structure(s->axis[k].key)) text_add(&t, "%d ", choice[k]);
    return intern(t.bytes);
}

/* The choices that structures of one lowered model and one machine do not differ in. */
static const char *shared_key(const struct space *s, const int *choice)
{
    static const char *const own[] = {"mesh.",
                                      "activation_checkpoint.",
                                      "batch.l",
                                      "batch.g",
                                      "schedule.",
                                      "optimizer.",
                                      "init.",
                                      "data.",
                                      "checkpoint.",
                                      "cluster.nodes",
                                      "cluster.devices_per_node"};
    struct text t = {0};
    text_add(&t, "%s", "");
    for (int k = 0; k < s->n_axes; k++) {
        bool differs = false;
        for (size_t i = 0; i < COUNT_OF(own); i++)
            differs |= !strncmp(s->axis[k].key, own[i], strlen(own[i]));
        if (!differs) text_add(&t, "%d ", choice[k]);
    }
    return intern(t.bytes);
}

static const char *point_text(const struct space *s, const int *choice)
{
    struct text t = {0};
    for (int k = 0; k < s->n_axes; k++)
        text_add(&t, "%s%s=%s", k ? " " : "", s->axis[k].key, s->axis[k].choice[choice[k]]);
    return t.bytes;
}

static struct known *find(struct known *table, size_t room, const char *key)
{
    size_t at = ((size_t)(uintptr_t)key >> 4) * 0x9E3779B97F4A7C15u;
    for (at &= room - 1; table[at].key && table[at].key != key; at = (at + 1) & (room - 1)) {}
    return &table[at];
}

/* -1: the architecture, or a pass, refuses the point, and *why says why. */
static int64_t compiled_bytes(const struct plan *p, const char **why)
{
    /* a structure whose sizes follow no simple rule: compiled point by point */
    struct diagnostics_mark mark = diagnostics_mark();
    struct graph *g = pass_lower(p);
    if (g) g = pipeline_run(g, LEVEL_MEMORY);
    const char *said = diagnostics_since(mark);
    if (!g) *why = intern(said ? said : "the architecture refuses it");
    diagnostics_drop(mark);
    return g ? g->local_bytes + g->wire_bytes : -1;
}

static bool next_point(const struct space *s, int *choice)
{
    for (int k = s->n_axes - 1; k >= 0; k--) {
        if (++choice[k] < s->axis[k].n) return true;
        choice[k] = 0;
    }
    return false;
}

/* Only what a command would train with is judged: a budget is decided at each point. */
static struct plan *plan_at(const struct arguments *a, const struct space *s, const int *choice,
                            const char **why)
{
    struct plan *p = space_plan(s, choice, why);
    if (!p) return NULL;
    plan_take_device(p, a->device);
    struct diagnostics_mark mark = diagnostics_mark();
    if (budget_decide(p)) return p;
    *why = intern(diagnostics_since(mark));
    diagnostics_drop(mark);
    return NULL;
}

/* What the structures of this point's model share; made once, and never let go of. */
static struct points *points_of(struct judging *all, const int *choice)
{
    const char *key = shared_key(all->space, choice), *why;
    for (int i = 0; i < all->shared.n; i++)
        if (all->shared.item[i].key == key) return all->shared.item[i].points;
    struct diagnostics_mark mark = diagnostics_mark();
    struct plan *p = plan_at(all->arguments, all->space, choice, &why);
    struct points *points = p ? points_open(p, true) : NULL;
    diagnostics_drop(mark);
    PUSH(&all->shared, ((struct shared){key, points}));
    return points;
}

static struct point point_of(const struct plan *p)
{
    return (struct point){.fsdp = p->fsdp,
                          .dp = p->dp,
                          .local = p->local,
                          .accumulation = p->accumulation,
                          .loss_chunks = p->loss_chunks,
                          .hosts = p->cluster.nodes,
                          .ranks_a_host = p->cluster.devices_per_node};
}

static struct judged judge(struct judging *all, const int *choice)
{
    struct judged j = {.verdict = IMPOSSIBLE};
    struct arena_mark mark = arena_mark();
    const char *why = NULL;
    struct plan *p = plan_at(all->arguments, all->space, choice, &why);
    struct known *k = p ? find(all->table, all->room, family_key(all->space, choice, p)) : NULL;
    int64_t limit = 0;
    struct estimate e = {.arena_bytes = -1};
    if (k && !k->key) {
        k->key = family_key(all->space, choice, p);
        arena_reset(mark); /* what is shared outlives the point */
        struct points *points = points_of(all, choice);
        mark = arena_mark();
        p = plan_at(all->arguments, all->space, choice, &why);
        struct diagnostics_mark said = diagnostics_mark();
        k->structure = points ? structure_new(points, p) : NULL;
        diagnostics_drop(said);
    }
    if (k && k->structure) {
        structure_evaluate(k->structure, point_of(p), ASK_BYTES, &e);
        j.peak_bytes = e.peak_bytes;
    }
    if (k && e.arena_bytes < 0) {
        e.arena_bytes = compiled_bytes(p, &why);
        j.peak_bytes = e.arena_bytes + p->cluster.outside_bytes;
    } else if (k && structure_evaluate(k->structure, point_of(p), ASK_TIME, &e))
        j.step_picoseconds = e.step_picoseconds;
    if (!p || (j.peak_bytes <= 0 && why))
        j.why = intern(why);
    else if (!ledger_limit(p, &limit))
        j.why = "this machine's memory cannot be read";
    else
        j.verdict = ledger_verdict(j.peak_bytes, limit);
    arena_reset(mark);
    return j;
}

static json_t *point_json(const struct space *s, const int *choice, const struct judged *j)
{
    json_t *set = json_array();
    for (int k = 0; k < s->n_axes; k++)
        json_array_append_new(set, json_string(utf8_text(text_format(
                                       "%s=%s", s->axis[k].key, s->axis[k].choice[choice[k]]))));
    json_t *o = json_pack("{s:o, s:s}", "set", set, "verdict", verdict_names[j->verdict]);
    if (j->why)
        json_object_set_new(o, "reason", json_string(utf8_text(j->why)));
    else
        json_object_set_new(o, "peak_bytes", json_integer((json_int_t)j->peak_bytes));
    if (!j->why && j->step_picoseconds)
        json_object_set_new(o, "step_seconds", json_real((double)j->step_picoseconds * 1e-12));
    return o;
}

/* Blank when it is not known. */
static const char *step_text(const struct judged *j)
{
    if (j->why || !j->step_picoseconds) return "";
    return text_format("%.4g s a step", (double)j->step_picoseconds * 1e-12);
}

int check_space(const struct arguments *a, const struct space *s, const char *path, json_t *all)
{
    const int64_t shown = 64;
    size_t room = 64;
    while ((int64_t)room < s->points * 2 && room < ((size_t)1 << 22)) room *= 2;
    struct judging judging = {
        .arguments = a, .space = s, .table = calloc(room, sizeof *judging.table), .room = room};
    int *choice = TAKE_MANY(int, s->n_axes);
    if (!judging.table) return command_fail(EXIT_ENVIRONMENT, "out of memory");
    json_t *points = all ? json_array() : NULL;
    int64_t count[VERDICTS] = {0};
    struct text lines = {0};
    text_add(&lines, "%s", "");
    bool more = true;
    for (int64_t n = 0; more; n++) {
        struct judged j = judge(&judging, choice);
        count[j.verdict]++;
        if (points)
            json_array_append_new(points, point_json(s, choice, &j));
        else if (n < shown)
            text_add(&lines, "  %-10s  %12s  %12s  %s%s%s\n", verdict_names[j.verdict],
                     j.why ? "" : text_bytes(j.peak_bytes), step_text(&j), point_text(s, choice),
                     j.why ? ": " : "", j.why ? j.why : "");
        more = next_point(s, choice);
    }
    for (size_t i = 0; i < room; i++) structure_free(judging.table[i].structure);
    free(judging.table);
    for (int i = 0; i < judging.shared.n; i++) points_close(judging.shared.item[i].points);
    if (all) {
        json_t *o = json_pack("{s:s, s:o}", "plan", utf8_text(path), "points", points);
        json_array_append_new(all, o);
    } else {
        printf("%s: a space of %s plans: %s fit, %s tight, %s exceed, %s impossible\n", path,
               text_count(s->points), text_count(count[FITS]), text_count(count[TIGHT]),
               text_count(count[EXCEEDS]), text_count(count[IMPOSSIBLE]));
        for (int k = 0; k < s->n_axes; k++) {
            printf("  %s =", s->axis[k].key);
            for (int i = 0; i < s->axis[k].n; i++)
                printf("%s %s", i ? " |" : "", s->axis[k].choice[i]);
            printf("\n");
        }
        fputs(lines.bytes, stdout);
        if (s->points > shown)
            printf("  and %s more: --json has every point\n", text_count(s->points - shown));
    }
    return count[FITS] + count[TIGHT] ? EXIT_FINE : EXIT_NO_FIT;
}
