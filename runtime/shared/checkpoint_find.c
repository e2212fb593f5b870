/* What a run goes on from. Rank 0 looks into the folder and decides; the others get its decision
 * and must find the same there. A run that goes on from the newest checkpoint keeps its number; any
 * other gets a new one, so that what it saves overwrites nothing and comes first from then on. */
#define _GNU_SOURCE
#include "checkpoint_run.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

enum { PATH_BYTES = 4096, NOTES_BYTES = 4096 };

struct run_folder run_folder;

static struct {
    int64_t before; /* step of the complete checkpoint behind the chosen one; -1: none */
    char from_path[PATH_BYTES], from_text[256], instead[256], notes[NOTES_BYTES];
    struct manifest *manifest;
    const char *changed;
} found = {.before = -1};

bool checkpoint_wanted(void) { return run_folder.path != NULL; }
bool checkpoint_resumed(void) { return run_folder.resumed; }
bool checkpoint_branches(void)
{
    return run_folder.resumed && run_folder.run != run_folder.from.run;
}

/* ── what to go on from ──────────────────────────────────────────────────────── */

PRINTF_LIKE(1, 2) static void note(const char *format, ...)
{
    va_list args;
    const size_t used = strlen(found.notes);
    va_start(args, format);
    vsnprintf(found.notes + used, sizeof found.notes - used, format, args);
    va_end(args);
}

/* Rank 0: which of `list`; -1: none. The others of the same kind are named. */
static int64_t choose(const struct options *o, const struct saved *list, int64_t n)
{
    char name[CHECKPOINT_NAME];
    for (int64_t i = 0; i < n && !o->fresh; i++) {
        if (o->resume_step >= 0 && list[i].step != o->resume_step) continue;
        if (list[i].complete) return i;
        folder_name(&list[i], name);
        note("checkpoint: %s/%s has no manifest, so it is not complete: left alone\n",
             run_folder.path, name);
    }
    return -1;
}

/* The step of the complete one that comes behind the chosen one; -1: none. */
static int64_t step_before(const struct saved *list, int64_t n, int64_t chosen)
{
    int64_t i = chosen + 1;
    while (i < n && !list[i].complete) i++;
    return i < n ? list[i].step : -1;
}

static void say_instead(void)
{
    if (found.before >= 0)
        snprintf(found.instead, sizeof found.instead,
                 "; the one before it is of step %lld: --resume=%lld goes on from it",
                 (long long)found.before, (long long)found.before);
    else
        snprintf(found.instead, sizeof found.instead,
                 "; there is none before it: --fresh starts anew and deletes nothing");
}

/* Rank 0. A run that does not go on from the newest that is there, complete or not, gets a number
 * that none has: its checkpoints are newer than all of them, and overwrite nothing. */
static bool decide(const struct options *o)
{
    int64_t n;
    const struct saved *list = folder_list(run_folder.path, &n);
    if (fail_noted()) return false;
    const int64_t i = choose(o, list, n);
    run_folder.run = n > 0 && i != 0 ? list[0].run + 1 : n > 0 ? list[0].run : 1;
    if (i < 0 && o->resume_step >= 0)
        return fail_note("--resume=%lld: there is no complete checkpoint of that step in %s",
                         (long long)o->resume_step, run_folder.path);
    if (i < 0 && o->resume)
        return fail_note("--resume: there is no complete checkpoint in %s", run_folder.path);
    if (i < 0) return true;
    run_folder.resumed = true;
    run_folder.from = list[i];
    found.before = step_before(list, n, i);
    return true;
}

/* What rank 0 has decided, to all. */
enum {
    SENT_MARK,
    SENT_MARK_TOP,
    SENT_RESUMED,
    SENT_FROM_RUN,
    SENT_FROM_STEP,
    SENT_BEFORE,
    SENT_RUN,
    SENT
};
static void share_decision(uint64_t *mark)
{
    double mine[SENT] = {0}, *all = ROOM(double, SENT *world.size);
    split_hash(*mark, &mine[SENT_MARK], &mine[SENT_MARK_TOP]);
    mine[SENT_RESUMED] = run_folder.resumed;
    mine[SENT_FROM_RUN] = (double)run_folder.from.run;
    mine[SENT_FROM_STEP] = (double)run_folder.from.step;
    mine[SENT_BEFORE] = (double)found.before;
    mine[SENT_RUN] = (double)run_folder.run;
    world_exchange(mine, SENT, all);
    *mark = joined_hash(all[SENT_MARK], all[SENT_MARK_TOP]);
    run_folder.resumed = all[SENT_RESUMED] > 0;
    run_folder.from.run = (int64_t)all[SENT_FROM_RUN];
    run_folder.from.step = (int64_t)all[SENT_FROM_STEP];
    found.before = (int64_t)all[SENT_BEFORE];
    run_folder.run = (int64_t)all[SENT_RUN];
    say_instead();
}

/* All read it, and must have read the same. */
static void read_manifest(void)
{
    char name[CHECKPOINT_NAME], who[128];
    uint64_t hash = 0;
    double mine[2], *all = ROOM(double, 2 * world.size);
    folder_name(&run_folder.from, name);
    snprintf(found.from_path, sizeof found.from_path, "%s/%s", run_folder.path, name);
    found.manifest = manifest_read(found.from_path, &run_folder.from, &hash, found.instead);
    world_agree();
    split_hash(hash, &mine[0], &mine[1]);
    world_exchange(mine, 2, all);
    if (hash != joined_hash(all[0], all[1]))
        fail_note("%sreads another manifest in %s than rank 0", world_rank_text(who),
                  found.from_path);
    world_agree();
}

bool checkpoint_find(const struct options *o, struct counters *at)
{
    uint64_t mark = 0;
    *at = (struct counters){.spent.began = (int64_t)time(NULL)};
    run_folder.path = o->checkpoint_dir ? o->checkpoint_dir : program.saving.directory;
    if (!run_folder.path && (o->fresh || o->resume || o->allows))
        return fail_note("%s is about checkpoints, and there is no folder of them: "
                         "checkpoint.directory in the plan or --checkpoint-dir",
                         o->fresh    ? "--fresh"
                         : o->resume ? "--resume"
                                     : "--allow");
    if (!run_folder.path && program.saving.given)
        return fail_note("the plan has a checkpoint section without checkpoint.directory: "
                         "--checkpoint-dir says where to");
    if (!run_folder.path) return true;
    if (world.rank == 0 && folder_open(run_folder.path, &mark)) decide(o);
    world_agree();
    share_decision(&mark);
    folder_check(run_folder.path, mark);
    world_agree();
    if (!run_folder.resumed) return manifest_knows_allowed(NULL, o);
    read_manifest();
    if (!manifest_same_plan(found.manifest, o, &found.changed)) return false;
    manifest_text(found.manifest, found.from_text);
    *at = manifest_counters(found.manifest);
    at->restarts++;
    return true;
}

bool checkpoint_load(struct device *d, const struct options *o)
{
    manifest_same_data(found.manifest, o);
    world_agree();
    manifest_verify(found.manifest, found.from_path, found.instead);
    world_agree();
    return manifest_load(found.manifest, found.from_path, d);
}

bool find_tidy(void)
{
    char why[WHY_BYTES];
    const struct run_folder *f = &run_folder;
    if (!f->resumed || f->run != f->from.run) return true;
    /* what was resumed is whole: it has been read */
    return (folder_sync(f->path, why) && folder_prune(f->path, f->run, f->from.step, why)) ||
           fail_note("%s", why);
}

void find_close(void)
{
    if (found.manifest) manifest_close(found.manifest);
    found.manifest = NULL;
}

/* ── words ───────────────────────────────────────────────────────────────────── */

void checkpoint_say_first(void)
{
    if (run_folder.resumed)
        say("resumed: step %lld of %s, %s", (long long)run_folder.from.step, found.from_path,
            found.from_text);
    else if (run_folder.path)
        say("new run: nothing was resumed from %s", run_folder.path);
}

void checkpoint_say_found(void)
{
    for (char *line = strtok(found.notes, "\n"); line; line = strtok(NULL, "\n")) say("%s", line);
    if (found.changed && found.changed[0]) say("resumed: %s", found.changed);
    if (run_folder.resumed && program.init_from)
        say("resumed: weights are the checkpoint's; init.from is what they once began with");
}
