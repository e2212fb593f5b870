/* When a run is saved, and how its ranks agree on it. Every decision is made from numbers that all
 * ranks have, those that they exchange at the end of a step, so no rank ever saves, waits or ends
 * alone. A save has three parts. At the end of a step every rank copies its share of the state, and
 * the run continues. A thread of each rank writes the copy. When all have reported that theirs is
 * on the disk, rank 0's thread writes the manifest and gives the checkpoint its name. Without a
 * second copy the ranks write while the run waits; the rest is the same. */
#define _GNU_SOURCE
#include "checkpoint.h"

#include <errno.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* What a rank tells at the end of a step. */
enum { TELL_STATE, TELL_PROGRESS, TELL_HASH, TELL_HASH_TOP, TELL_DUE, TELL_LIMIT };
_Static_assert(TELL_LIMIT + 1 == CHECKPOINT_TELLS, "what is told");

enum save_state { SAVE_NONE, SAVE_WRITING, SAVE_WRITTEN, SAVE_PUBLISHED, SAVE_FAILED };
enum job { JOB_NONE, JOB_PART, JOB_PUBLISH, JOB_STOP };
enum { PATH_BYTES = 4096, NOTES_BYTES = 4096, FEWEST_MS = 1, MOST_MS = 200 };

static struct {
    const char *path; /* the folder of all checkpoints; NULL: none */
    bool resumed;
    struct saved from;
    int64_t before; /* step of what is there instead of it; -1: nothing */
    char from_path[PATH_BYTES], from_text[256], instead[256], notes[NOTES_BYTES];
    struct manifest *manifest;
    const char *changed;
    int64_t run;
    double opened, saved_at; /* clock: when the run began, and the last save */
    struct checkpoint_wish wish;
    double *mine, *all;

    /* the save at hand */
    enum save_state state;
    bool publishing;
    struct counters at;
    char temporary[2 * CHECKPOINT_NAME], folder[PATH_BYTES];
    struct part_written written;
    uint64_t *hash;
    double begun, stall, bytes, waiting_since; /* clock; 0: the run does not wait */
    char why[WHY_BYTES];

    int64_t last; /* step that was begun, or resumed from; -1: none */
    struct saved latest;
    bool has_latest;
    int64_t saves;
    double stalls, untold; /* seconds: of all saves; since somebody asked */

    float *copy;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t work, done;
    enum job job;
    bool threaded;
} save = {.last = -1, .lock = PTHREAD_MUTEX_INITIALIZER};

bool checkpoint_wanted(void) { return save.path != NULL; }
bool checkpoint_resumed(void) { return save.resumed; }

static void copy_share(int64_t *from, int64_t *to) { state_share(world.replica, from, to); }

int64_t checkpoint_copy_bytes(void)
{
    int64_t from, to;
    if (!save.path || !program.saving.given || !program.saving.async) return 0;
    copy_share(&from, &to);
    return 4 * STATE_KINDS * (to - from);
}

/* ── what to go on from ──────────────────────────────────────────────────────── */

PRINTF_LIKE(1, 2) static void note(const char *format, ...)
{
    va_list args;
    const size_t used = strlen(save.notes);
    va_start(args, format);
    vsnprintf(save.notes + used, sizeof save.notes - used, format, args);
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
        note("checkpoint: %s/%s has no manifest, so it is not complete: left alone\n", save.path,
             name);
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
    if (save.before >= 0)
        snprintf(save.instead, sizeof save.instead,
                 "; the one before it is of step %lld: --resume=%lld goes on from it",
                 (long long)save.before, (long long)save.before);
    else
        snprintf(save.instead, sizeof save.instead,
                 "; there is none before it: --fresh starts anew and deletes nothing");
}

/* Rank 0. A run that does not go on from the newest that is there, complete or not, gets a number
 * that none has: its checkpoints are newer than all of them, and overwrite nothing. */
static bool decide(const struct options *o)
{
    int64_t n;
    const struct saved *list = folder_list(save.path, &n);
    if (fail_noted()) return false;
    const int64_t i = choose(o, list, n);
    save.run = n > 0 && i != 0 ? list[0].run + 1 : n > 0 ? list[0].run : 1;
    if (i < 0 && o->resume_step >= 0)
        return fail_note("--resume=%lld: there is no complete checkpoint of that step in %s",
                         (long long)o->resume_step, save.path);
    if (i < 0 && o->resume)
        return fail_note("--resume: there is no complete checkpoint in %s", save.path);
    if (i < 0) return true;
    save.resumed = true;
    save.from = list[i];
    save.before = step_before(list, n, i);
    return true;
}

static void split(uint64_t x, double *low, double *top)
{
    *low = (double)(x & UINT32_MAX); /* a double holds no 64 bits */
    *top = (double)(x >> 32);
}
static uint64_t joined(double low, double top) { return (uint64_t)low | (uint64_t)top << 32; }

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
    split(*mark, &mine[SENT_MARK], &mine[SENT_MARK_TOP]);
    mine[SENT_RESUMED] = save.resumed;
    mine[SENT_FROM_RUN] = (double)save.from.run;
    mine[SENT_FROM_STEP] = (double)save.from.step;
    mine[SENT_BEFORE] = (double)save.before;
    mine[SENT_RUN] = (double)save.run;
    world_exchange(mine, SENT, all);
    *mark = joined(all[SENT_MARK], all[SENT_MARK_TOP]);
    save.resumed = all[SENT_RESUMED] > 0;
    save.from.run = (int64_t)all[SENT_FROM_RUN];
    save.from.step = (int64_t)all[SENT_FROM_STEP];
    save.before = (int64_t)all[SENT_BEFORE];
    save.run = (int64_t)all[SENT_RUN];
    say_instead();
}

/* All read it, and must have read the same. */
static void read_manifest(void)
{
    char name[CHECKPOINT_NAME], who[128];
    uint64_t hash = 0;
    double mine[2], *all = ROOM(double, 2 * world.size);
    folder_name(&save.from, name);
    snprintf(save.from_path, sizeof save.from_path, "%s/%s", save.path, name);
    save.manifest = manifest_read(save.from_path, &hash, save.instead);
    world_agree();
    split(hash, &mine[0], &mine[1]);
    world_exchange(mine, 2, all);
    if (hash != joined(all[0], all[1]))
        fail_note("%sreads another manifest in %s than rank 0", world_rank_text(who),
                  save.from_path);
    world_agree();
}

bool checkpoint_find(const struct options *o, struct counters *at)
{
    uint64_t mark = 0;
    *at = (struct counters){0};
    save.opened = save.saved_at = clock_seconds();
    save.path = o->checkpoint_dir ? o->checkpoint_dir : program.saving.directory;
    save.mine = ROOM(double, CHECKPOINT_TELLS);
    save.all = ROOM(double, CHECKPOINT_TELLS *world.size);
    if (!save.path && (o->fresh || o->resume || o->allows))
        return fail_note("%s is about checkpoints, and there is no folder of them: "
                         "checkpoint.directory in the plan or --checkpoint-dir",
                         o->fresh    ? "--fresh"
                         : o->resume ? "--resume"
                                     : "--allow");
    if (!save.path && program.saving.given)
        return fail_note("the plan has a checkpoint section without checkpoint.directory: "
                         "--checkpoint-dir says where to");
    if (!save.path) return true;
    if (world.rank == 0 && folder_open(save.path, &mark)) decide(o);
    world_agree();
    share_decision(&mark);
    folder_check(save.path, mark);
    world_agree();
    if (!save.resumed) return true;
    read_manifest();
    if (!manifest_same_plan(save.manifest, o, &save.changed)) return false;
    manifest_text(save.manifest, save.from_text);
    *at = manifest_counters(save.manifest);
    at->restarts++;
    save.last = at->step;
    save.latest = save.from;
    save.has_latest = true;
    return true;
}

bool checkpoint_load(struct device *d, const struct options *o)
{
    manifest_same_data(save.manifest, o);
    world_agree();
    manifest_verify(save.manifest, save.from_path, save.instead);
    world_agree();
    return manifest_load(save.manifest, save.from_path, d);
}

/* ── the writer's thread ─────────────────────────────────────────────────────── */

static bool publish(char why[WHY_BYTES])
{
    char name[CHECKPOINT_NAME];
    folder_name(&(struct saved){.run = save.run, .step = save.at.step}, name);
    return manifest_write(save.folder, &save.at, save.run, save.hash, why) &&
           folder_publish(save.path, save.temporary, name, why) &&
           folder_prune(save.path, save.run, save.at.step, why);
}

static enum save_state do_job(enum job job, struct device *d)
{
    bool fine = false;
    switch (job) {
    case JOB_PART:
        fine = part_write(save.folder, save.at.step, d, &save.written, save.why);
        return fine ? SAVE_WRITTEN : SAVE_FAILED;
    case JOB_PUBLISH: fine = publish(save.why); return fine ? SAVE_PUBLISHED : SAVE_FAILED;
    case JOB_NONE:
    case JOB_STOP: break;
    }
    return SAVE_NONE;
}

static void *work(void *unused)
{
    pthread_mutex_lock(&save.lock);
    for (;;) {
        while (save.job == JOB_NONE) pthread_cond_wait(&save.work, &save.lock);
        const enum job job = save.job;
        if (job == JOB_STOP) break;
        pthread_mutex_unlock(&save.lock);
        const enum save_state state = do_job(job, NULL);
        pthread_mutex_lock(&save.lock);
        save.state = state;
        save.job = JOB_NONE;
        pthread_cond_broadcast(&save.done);
    }
    pthread_mutex_unlock(&save.lock);
    return unused;
}

static void give(enum job job)
{
    pthread_mutex_lock(&save.lock);
    save.job = job;
    pthread_cond_signal(&save.work);
    pthread_mutex_unlock(&save.lock);
}

static enum save_state state_now(void)
{
    pthread_mutex_lock(&save.lock);
    const enum save_state state = save.state;
    pthread_mutex_unlock(&save.lock);
    return state;
}

/* Until the thread has nothing to do, or that many milliseconds. True: it had something. */
static bool wait_for_thread(int64_t milliseconds)
{
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    const int64_t ns = until.tv_nsec + milliseconds % 1000 * 1000000;
    until.tv_sec += milliseconds / 1000 + ns / 1000000000;
    until.tv_nsec = ns % 1000000000;
    pthread_mutex_lock(&save.lock);
    const bool busy = save.job != JOB_NONE;
    while (save.job != JOB_NONE &&
           pthread_cond_timedwait(&save.done, &save.lock, &until) != ETIMEDOUT) {}
    pthread_mutex_unlock(&save.lock);
    return busy;
}

/* Rank 0: what `keep` does not hold any more, where the run before was killed before it had removed
 * it. What was resumed is whole: it has been read. */
static void tidy(void)
{
    if (save.run == save.from.run && !(folder_sync(save.path, save.why) &&
                                       folder_prune(save.path, save.run, save.from.step, save.why)))
        fail_note("%s", save.why);
}

bool checkpoint_ready(struct device *d)
{
    if (save.manifest) manifest_close(save.manifest), save.manifest = NULL;
    if (!save.path) return true;
    const int64_t bytes = checkpoint_copy_bytes();
    double mine[2], *all = ROOM(double, 2 * world.size);
    if (bytes > 0) save.copy = device_host_memory(d, bytes);
    part_ready(save.copy);
    mine[0] = (double)part_header_bytes();
    mine[1] = (double)part_elements();
    world_agree();
    world_exchange(mine, 2, all);
    save.hash = ROOM(uint64_t, world.size);
    if (world.rank == 0) {
        int64_t *header = ROOM(int64_t, world.size), *elements = ROOM(int64_t, world.size);
        for (int r = 0; r < world.size; r++)
            header[r] = (int64_t)all[2 * r], elements[r] = (int64_t)all[2 * r + 1];
        manifest_ready(header, elements);
        data_fingerprint();
        if (save.resumed) tidy();
    }
    pthread_condattr_t monotonic;
    if (pthread_condattr_init(&monotonic) ||
        pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC) ||
        pthread_cond_init(&save.work, NULL) || pthread_cond_init(&save.done, &monotonic) ||
        pthread_create(&save.thread, NULL, work, NULL))
        return fail_note("rank %d: no thread for checkpoints", world.rank);
    save.threaded = true;
    return true;
}

/* ── a save ──────────────────────────────────────────────────────────────────── */

static double wait_begins(void) { return save.waiting_since = clock_seconds(); }

static void wait_ends(void)
{
    const double seconds = clock_seconds() - save.waiting_since;
    save.waiting_since = 0;
    save.stall += seconds;
    save.stalls += seconds;
    save.untold += seconds;
}

/* Some rank has failed: all stop writing, what there is of it goes, and all leave with its words.
 */
_Noreturn static void give_up(void)
{
    char why[WHY_BYTES];
    double none = 0;
    part_cancel();
    while (wait_for_thread(MOST_MS)) {}
    if (state_now() == SAVE_FAILED)
        fail_note("%s%s", save.why, checkpoint_latest_text((char[512]){0}));
    world_exchange(&none, 1, save.all); /* nobody writes any more */
    if (world.rank == 0) folder_remove(save.path, save.temporary, why);
    world_agree();
    fail_now("a checkpoint failed, and no rank says why");
}

static void complete(void)
{
    char name[CHECKPOINT_NAME], bytes[32];
    const double now = clock_seconds(), seconds = now - save.begun,
                 stall = save.stall + (save.waiting_since > 0 ? now - save.waiting_since : 0);
    save.state = SAVE_NONE;
    save.publishing = false;
    save.latest = (struct saved){.run = save.run, .step = save.at.step, .complete = true};
    save.has_latest = true;
    save.saves++;
    folder_name(&save.latest, name);
    say("checkpoint: %s: %s bytes in %.3f s, the run waited %.3f s", name,
        count_text((int64_t)save.bytes, bytes), seconds, stall);
}

void checkpoint_tell(double *mine)
{
    memset(mine, 0, CHECKPOINT_TELLS * sizeof *mine);
    const double now = clock_seconds();
    if (world.rank == 0) {
        mine[TELL_DUE] = save.path && program.saving.every_seconds > 0 &&
                         now - save.saved_at >= program.saving.every_seconds;
        mine[TELL_LIMIT] =
            program.time_limit_seconds > 0 && now - save.opened >= program.time_limit_seconds;
    }
    if (!save.path) return;
    mine[TELL_STATE] = state_now();
    mine[TELL_PROGRESS] = (double)part_progress();
    split(save.written.hash, &mine[TELL_HASH], &mine[TELL_HASH_TOP]);
}

void checkpoint_told(const double *all, int64_t stride)
{
    save.wish = (struct checkpoint_wish){.save = all[TELL_DUE] > 0, .end = all[TELL_LIMIT] > 0};
    bool written = true, failed = false, saving = false;
    double bytes = 0;
    for (int r = 0; r < world.size; r++) {
        const double *told = all + r * stride;
        const enum save_state state = (enum save_state)told[TELL_STATE];
        saving = saving || state != SAVE_NONE;
        failed = failed || state == SAVE_FAILED;
        written = written && state == SAVE_WRITTEN;
        bytes += told[TELL_PROGRESS];
    }
    if (!saving) return;
    if (failed) give_up();
    save.bytes = bytes;
    if ((enum save_state)all[TELL_STATE] == SAVE_PUBLISHED) {
        complete();
    } else if (written && world.rank == 0 && !save.publishing) {
        for (int r = 0; r < world.size; r++)
            save.hash[r] = joined(all[r * stride + TELL_HASH], all[r * stride + TELL_HASH_TOP]);
        save.publishing = true;
        give(JOB_PUBLISH);
    }
}

/* A disk that takes nothing for as long as a rank may be silent: rank 0 ends the run. */
static void watch_progress(double *moved, double *seen)
{
    double sum = 0;
    int writing = 0;
    for (int r = world.size - 1; r >= 0; r--) {
        sum += save.all[r * CHECKPOINT_TELLS + TELL_PROGRESS] +
               save.all[r * CHECKPOINT_TELLS + TELL_STATE];
        if ((enum save_state)save.all[r * CHECKPOINT_TELLS + TELL_STATE] == SAVE_WRITING)
            writing = r;
    }
    const double now = clock_seconds();
    if (sum > *seen || sum < *seen) *moved = now;
    *seen = sum;
    if (world.rank == 0 && program.timeout_seconds > 0 && now - *moved > program.timeout_seconds)
        fail_now("rank %d has written nothing of the checkpoint of step %lld for %.3g s", writing,
                 (long long)save.at.step, now - *moved);
}

void checkpoint_finish(void)
{
    if (!save.path || state_now() == SAVE_NONE) return;
    double moved = wait_begins(), seen = -1;
    int64_t pause = FEWEST_MS;
    position_phase(PHASE_SAVE);
    while (state_now() != SAVE_NONE) {
        /* while the thread writes, or until others have written */
        if (!wait_for_thread(pause) && pause > FEWEST_MS)
            nanosleep(&(struct timespec){.tv_nsec = pause * 1000000}, NULL);
        pause = 2 * pause < MOST_MS ? 2 * pause : MOST_MS;
        checkpoint_tell(save.mine);
        world_exchange(save.mine, CHECKPOINT_TELLS, save.all);
        checkpoint_told(save.all, CHECKPOINT_TELLS);
        watch_progress(&moved, &seen);
    }
    wait_ends();
    position_phase(PHASE_STEPS);
}

static void copy_out(struct device *d)
{
    const int64_t at[STATE_KINDS] = {program.master, program.moment1, program.moment2};
    int64_t from, to;
    copy_share(&from, &to);
    for (int kind = 0; kind < STATE_KINDS; kind++)
        device_copy_out(d, save.copy + kind * (to - from), (float *)local(d, at[kind]) + from,
                        4 * (to - from));
    device_copied(d);
}

/* A folder of its own, with a name that no other save ever had: rank 0 makes it. */
static void begin_folder(void)
{
    double mine[3] = {0};
    char name[CHECKPOINT_NAME];
    struct timespec now;
    uint64_t mark = 0;
    folder_name(&(struct saved){.run = save.run, .step = save.at.step}, name);
    if (world.rank == 0) {
        clock_gettime(CLOCK_REALTIME, &now);
        mark = shuffle_mix((uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec +
                           (uint64_t)getpid());
        snprintf(save.temporary, sizeof save.temporary, "%s.partial-%016llx", name,
                 (unsigned long long)mark);
        mine[0] = !folder_begin(save.path, save.temporary, save.why);
    }
    split(mark, &mine[1], &mine[2]);
    world_exchange(mine, 3, save.all);
    if (save.all[0] > 0) {
        if (world.rank == 0) fail_note("%s%s", save.why, checkpoint_latest_text((char[512]){0}));
        world_agree();
    }
    snprintf(save.temporary, sizeof save.temporary, "%s.partial-%016llx", name,
             (unsigned long long)joined(save.all[1], save.all[2]));
    snprintf(save.folder, sizeof save.folder, "%s/%s", save.path, save.temporary);
}

static void begin(struct device *d, const struct counters *at)
{
    checkpoint_finish();
    const double from = wait_begins();
    position_phase(PHASE_SAVE);
    save.at = *at;
    save.last = at->step;
    save.begun = save.saved_at = from;
    save.stall = 0;
    begin_folder();
    if (save.copy) {
        copy_out(d);
        save.state = SAVE_WRITING;
        give(JOB_PART);
    } else {
        save.state = do_job(JOB_PART, d);
    }
    wait_ends();
    position_phase(PHASE_STEPS);
    if (!save.copy) checkpoint_finish();
}

void checkpoint_step(struct device *d, const struct counters *at, bool now)
{
    const int64_t every = program.saving.every_steps;
    const bool due = every > 0 && at->step % every == 0;
    if (save.path && (due || now) && at->step != save.last) begin(d, at);
}

void checkpoint_end(struct device *d, const struct counters *at)
{
    checkpoint_step(d, at, true);
    checkpoint_finish();
}

struct checkpoint_wish checkpoint_wish(void) { return save.wish; }

/* ── words ───────────────────────────────────────────────────────────────────── */

const char *checkpoint_latest_text(char text[512])
{
    char name[CHECKPOINT_NAME];
    text[0] = 0;
    if (!save.path) return text;
    folder_name(&save.latest, name);
    if (save.has_latest)
        snprintf(text, 512, "; the last checkpoint is %.380s/%s", save.path, name);
    else
        snprintf(text, 512, "; there is no checkpoint yet");
    return text;
}

double checkpoint_stall_seconds(void)
{
    const double seconds = save.untold;
    save.untold = 0;
    return seconds;
}

void checkpoint_say_first(void)
{
    if (save.resumed)
        say("resumed: step %lld of %s, %s", (long long)save.from.step, save.from_path,
            save.from_text);
}

void checkpoint_describe(void)
{
    char every[64] = "at the end", keep[64] = "all stay", bytes[32];
    if (!save.path) return;
    for (char *line = strtok(save.notes, "\n"); line; line = strtok(NULL, "\n")) say("%s", line);
    if (save.changed && save.changed[0]) say("resumed: with another plan: %s", save.changed);
    if (save.resumed && program.init_from)
        say("resumed: weights are the checkpoint's; init.from is what they once began with");
    if (program.saving.every_steps > 0)
        snprintf(every, sizeof every, "every %lld steps", (long long)program.saving.every_steps);
    else if (program.saving.every_seconds > 0)
        snprintf(every, sizeof every, "every %.4g s", program.saving.every_seconds);
    if (program.saving.keep > 0)
        snprintf(keep, sizeof keep, "the newest %lld stay", (long long)program.saving.keep);
    const int64_t copy = checkpoint_copy_bytes();
    if (copy > 0)
        say("checkpoints: %s to %s, %s; written while training goes on from a second copy of %s "
            "bytes a rank",
            every, save.path, keep, count_text(copy, bytes));
    else
        say("checkpoints: %s to %s, %s; written while the run waits%s", every, save.path, keep,
            program.saving.given ? ""
                                 : " (a checkpoint section in the plan makes room for a copy)");
    if (save.run > 1)
        say("checkpoints: this is run %lld of the folder, its checkpoints are called "
            "step-…-run%lld",
            (long long)save.run, (long long)save.run);
}

double checkpoint_stalls(void) { return save.stalls; }

void checkpoint_summary(void)
{
    if (save.saves > 0)
        say("checkpoints: %lld saved, the run waited %.3f s for them%s", (long long)save.saves,
            save.stalls, checkpoint_latest_text((char[512]){0}));
}

void checkpoint_close(void)
{
    if (save.threaded) {
        give(JOB_STOP);
        pthread_join(save.thread, NULL);
        save.threaded = false;
    }
    folder_close();
}
