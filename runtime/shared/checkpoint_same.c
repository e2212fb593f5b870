/* Is a checkpoint one of this plan and this data? Keys are compared one by one, by the list that
 * the compiler made (compiler/check/plan_keys.c). Data is compared by what it holds: sizes and
 * blocks of the files, and the samples that some of the steps have read, which are read once more.
 */
#define _GNU_SOURCE
#include "checkpoint.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NAME_BYTES = 512, LIST_BYTES = 1400 };

/* ── the plan ──────────────────────────────────────────────────────────────── */

static bool option_allows(const struct options *o, const char *key)
{
    const size_t n = strlen(key);
    for (int i = 0; i < o->allows; i++)
        for (const char *at = o->allow[i]; *at;
             at += strcspn(at, ",") + (at[strcspn(at, ",")] != 0))
            if (strcspn(at, ",") == n && !strncmp(at, key, n)) return true;
    return false;
}

static void add_difference(char *to, size_t size, const char *key, const char *before,
                           const char *now)
{
    const size_t used = strlen(to);
    snprintf(to + used, size - used, "%s%s was %.60s and is %.60s", used ? ", " : "", key, before,
             now);
}

/* Both as they are written: what is equal as JSON was written by the same rules. */
static bool same_value(json_t *there, const char *here, char *text, size_t size)
{
    json_t *mine = json_loads(here, JSON_DECODE_ANY, NULL);
    const bool same = there && mine && json_equal(there, mine);
    char *dump = there ? json_dumps(there, JSON_ENCODE_ANY) : NULL;
    snprintf(text, size, "%s", dump ? dump : "not known");
    free(dump);
    json_decref(mine);
    return same;
}

static const struct plan_key *own_key(const char *path)
{
    for (int i = 0; i < program.plan_keys; i++)
        if (!strcmp(program.plan_key[i].path, path)) return &program.plan_key[i];
    return NULL;
}

static json_t *keys_there(const struct manifest *m, const char *kind)
{
    return json_object_get(json_object_get(manifest_root(m), "plan"), kind);
}

static json_t *key_there(const struct manifest *m, const char *path)
{
    json_t *value = json_object_get(keys_there(m, "mathematics"), path);
    return value ? value : json_object_get(keys_there(m, "rest"), path);
}

bool manifest_knows_allowed(const struct manifest *m, const struct options *o)
{
    for (int i = 0; i < o->allows; i++)
        for (const char *at = o->allow[i]; *at;
             at += strcspn(at, ",") + (at[strcspn(at, ",")] != 0)) {
            char key[NAME_BYTES];
            snprintf(key, sizeof key, "%.*s", (int)strcspn(at, ","), at);
            if (!own_key(key) && (!m || !key_there(m, key)))
                return fail_note(m ? "--allow %s: neither the plan nor the checkpoint has such a "
                                     "key"
                                   : "--allow %s: the plan has no such key, and there is no "
                                     "checkpoint to resume that could have it",
                                 key);
        }
    return true;
}

/* Differences that are refused, and those that are not; the first of the refused. */
struct differences {
    char refused[LIST_BYTES], others[LIST_BYTES], first[256];
};

static void differ(struct differences *d, const struct options *o, const char *key,
                   const char *before, const char *now, bool mathematics)
{
    const bool refuse = mathematics && !option_allows(o, key);
    add_difference(refuse ? d->refused : d->others, LIST_BYTES, key, before, now);
    if (refuse && !d->first[0]) snprintf(d->first, sizeof d->first, "%s", key);
}

/* Keys that the checkpoint has and the plan has not. */
static void only_there(json_t *keys, struct differences *d, const struct options *o,
                       bool mathematics)
{
    const char *path;
    json_t *value;
    json_object_foreach(keys, path, value)
    {
        if (own_key(path)) continue;
        char *dump = json_dumps(value, JSON_ENCODE_ANY);
        differ(d, o, path, dump ? dump : "?", "not given", mathematics);
        free(dump);
    }
}

/* Of the same plan: what else the last bits of results can come from. */
static void made_elsewhere(const struct manifest *m, char *to, size_t size)
{
    json_t *versions = json_object_get(manifest_root(m), "versions");
    const char *trainer = json_string_value(json_object_get(versions, "trainer")),
               *machine = json_string_value(json_object_get(versions, "machine"));
    char mine[32], here[192];
    snprintf(mine, sizeof mine, "%016" PRIx64, agree_own_program());
    if (machine && strcmp(machine, device_machine(here)))
        snprintf(to, size, "of another machine (%s; this is %s): last bits may differ", machine,
                 here);
    else if (trainer && strcmp(trainer, mine))
        snprintf(to, size, "of another build of the trainer: last bits may differ");
}

bool manifest_same_plan(const struct manifest *m, const struct options *o, const char **changed)
{
    static struct differences d;
    static char made[LIST_BYTES + 32];
    char was[128];
    *changed = made;
    for (int i = 0; i < program.plan_keys; i++) {
        const struct plan_key *k = &program.plan_key[i];
        if (!same_value(key_there(m, k->path), k->json, was, sizeof was))
            differ(&d, o, k->path, was, k->json, k->mathematics);
    }
    only_there(keys_there(m, "mathematics"), &d, o, true);
    only_there(keys_there(m, "rest"), &d, o, false);
    if (!manifest_knows_allowed(m, o)) return false;
    if (d.others[0])
        snprintf(made, sizeof made, "with another plan: %s", d.others);
    else
        made_elsewhere(m, made, sizeof made);
    if (!d.refused[0]) return true;
    return fail_note("%s is of another plan: %s; --allow %s goes on all the same, --fresh starts "
                     "anew and deletes nothing, --checkpoint-dir takes another folder",
                     manifest_path(m), d.refused, d.first);
}

/* ── the data ──────────────────────────────────────────────────────────────── */

static bool same_files(const struct manifest *m)
{
    json_t *data = json_object_get(manifest_root(m), "data");
    const char *text = json_string_value(json_object_get(data, "hash"));
    char mine[32];
    snprintf(mine, sizeof mine, "%016" PRIx64, data_fingerprint());
    const int64_t tokens = json_integer_value(json_object_get(data, "tokens"));
    if (text && !strcmp(text, mine) && tokens == data_tokens()) return true;
    return fail_note("%s was trained on other data: data.train held %lld tokens with hash %s, and "
                     "holds %lld with hash %s; --allow data.train goes on all the same",
                     manifest_path(m), (long long)tokens, text ? text : "?",
                     (long long)data_tokens(), mine);
}

/* Whether a key says which samples a step has. */
static bool moves_samples(const char *path)
{
    return !strncmp(path, "data.", 5) || !strcmp(path, "batch.global") ||
           !strcmp(path, "batch.sequence");
}

/* Whether the samples of a step lie where they lay: keys that were allowed to differ move them. */
static bool same_places(const struct manifest *m)
{
    const char *path;
    json_t *value;
    char was[128];
    for (int i = 0; i < program.plan_keys; i++) {
        const struct plan_key *k = &program.plan_key[i];
        if (k->mathematics && moves_samples(k->path) &&
            !same_value(key_there(m, k->path), k->json, was, sizeof was))
            return false;
    }
    json_object_foreach(keys_there(m, "mathematics"), path, value)
    {
        if (moves_samples(path) && !own_key(path)) return false;
    }
    return true;
}

/* Every rank reads its own samples, and all add up, as in the step. */
static void same_readings(const struct manifest *m)
{
    const struct counters at = manifest_counters(m);
    double *all = ROOM(double, 2 * world.size);
    for (int i = 0; i < at.read.n; i++) {
        const struct reading *r = &at.read.at[i];
        uint64_t hash = 0, sum = 0;
        double mine[2];
        data_read_again(r->sample, &hash);
        world_agree();
        split_hash(hash, &mine[0], &mine[1]);
        world_exchange(mine, 2, all);
        for (int k = 0; k < world.size; k++) sum += joined_hash(all[2 * k], all[2 * k + 1]);
        if (sum != r->hash && world.rank == 0)
            fail_note("%s was trained on other data: what step %lld read, %lld samples from sample "
                      "%lld on, is no longer what data.train holds there; --allow data.train goes "
                      "on all the same",
                      manifest_path(m), (long long)r->step, (long long)program.global,
                      (long long)r->sample);
        world_agree();
    }
}

bool manifest_same_data(const struct manifest *m, const struct options *o)
{
    /* without any data (--steps 0) there is none to be other */
    if (data_tokens() == 0 || option_allows(o, "data.train")) return true;
    if (world.rank == 0) same_files(m); /* one look is enough */
    world_agree();
    if (same_places(m)) same_readings(m);
    return true;
}
