/* Judges every point of a space (every combination of alternatives). The memory of a point comes
 * from its own layout, as for a single plan. Points of one structure (family.c) are compiled once
 * and then only laid out, each at its own sizes. Keys that change no byte (replicas, global batch,
 * rates, seeds) do not start a new family. The arena is reset between points, so a large space
 * costs time and not memory. */
#include "base/escape.h"
#include "analysis/space.h"
#include "passes/budget.h"
#include "analysis/ledger.h"
#include "passes/family.h"
#include "ir/cost.h"

#include <stdlib.h>
#include <string.h>

/* why: NULL unless the point is impossible */
struct judged {
    int64_t peak_bytes;
    enum verdict verdict;
    const char *why;
};
/* family: NULL when the architecture cannot be compiled at the sizes that a family is read off. */
struct known {
    const char *key;
    struct family *family;
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

/* The family of a plan. */
static void know(const struct plan *p, struct known *k)
{
    struct diagnostics_mark mark = diagnostics_mark();
    k->family = family_make(p);
    diagnostics_drop(mark);
}

/* -1: the architecture, or a pass, refuses the point, and *why says why. */
static int64_t arena_bytes(struct family *f, const struct plan *p, const char **why)
{
    int64_t bytes = f ? family_arena_bytes(f, p) : -1;
    if (bytes >= 0) return bytes;
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

static struct judged judge(const struct arguments *a, const struct space *s, const int *choice,
                           struct known *table, size_t room)
{
    struct judged j = {.verdict = IMPOSSIBLE};
    struct arena_mark mark = arena_mark();
    const char *why = NULL;
    struct plan *p = plan_at(a, s, choice, &why);
    struct known *k = p ? find(table, room, family_key(s, choice, p)) : NULL;
    int64_t limit = 0, bytes = -1;
    if (k && !k->key) {
        k->key = family_key(s, choice, p);
        know(p, k);
    }
    if (k) bytes = arena_bytes(k->family, p, &why);
    if (!p || bytes < 0)
        j.why = intern(why);
    else if (!ledger_limit(p, &limit))
        j.why = "this machine's memory cannot be read";
    else {
        j.peak_bytes = bytes + p->cluster.outside_bytes;
        if (p->device == DEVICE_CPU) /* where a copy of the state is a rank's own memory */
            j.peak_bytes += cost_copy_bytes_of(family_state_elements(k->family, p->fsdp), p);
        j.verdict = ledger_verdict(j.peak_bytes, limit);
    }
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
    return o;
}

int check_space(const struct arguments *a, const struct space *s, const char *path, json_t *all)
{
    const int64_t shown = 64;
    size_t room = 64;
    while ((int64_t)room < s->points * 2 && room < ((size_t)1 << 22)) room *= 2;
    struct known *table = calloc(room, sizeof *table);
    int *choice = TAKE_MANY(int, s->n_axes);
    if (!table) return command_fail(EXIT_ENVIRONMENT, "out of memory");
    json_t *points = all ? json_array() : NULL;
    int64_t count[VERDICTS] = {0};
    struct text lines = {0};
    text_add(&lines, "%s", "");
    bool more = true;
    for (int64_t n = 0; more; n++) {
        struct judged j = judge(a, s, choice, table, room);
        count[j.verdict]++;
        if (points)
            json_array_append_new(points, point_json(s, choice, &j));
        else if (n < shown)
            text_add(&lines, "  %-10s  %12s  %s%s%s\n", verdict_names[j.verdict],
                     j.why ? "" : text_bytes(j.peak_bytes), point_text(s, choice),
                     j.why ? ": " : "", j.why ? j.why : "");
        more = next_point(s, choice);
    }
    for (size_t i = 0; i < room; i++) family_free(table[i].family);
    free(table);
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
