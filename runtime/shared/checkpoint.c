/* When a run is saved, and how its ranks agree on it. Every decision is made from numbers that all
 * ranks have, those that they exchange at the end of a step, so no rank ever saves, waits or ends
 * alone. A save has three parts. At the end of a step every rank copies its share of the state, and
 * the run continues. A thread of each rank writes the copy (checkpoint_writer.c). When all have
 * reported that theirs is on the disk, rank 0's thread writes the manifest and gives the checkpoint
 * its name. Without a second copy the ranks write while the run waits; the rest is the same. */
#define _GNU_SOURCE
#include "checkpoint_run.h"

#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* What a rank tells at the end of a step. */
enum { TELL_STATE, TELL_PROGRESS, TELL_HASH, TELL_HASH_TOP, TELL_DUE, TELL_LIMIT };
_Static_assert(TELL_LIMIT + 1 == CHECKPOINT_TELLS, "what is told");

enum { FEWEST_MS = 1, MOST_MS = 200 };
/* Ranks that write while the run waits meet this often, so that one that is stopped is missed. */
#define MEET_SECONDS 0.25

static struct {
    double opened, saved_at; /* clock: when the process began, and the last save */
    struct checkpoint_wish wish;
    double *mine, *all;

    /* the save at hand, beside save_at_hand */
    bool publishing;
    double begun, stall, bytes, waiting_since; /* clock; 0: the run does not wait */
    double moved, seen;                        /* of watch_progress: clock, and the sum then */
    double met;                                /* clock: the last exchange while writing */

    int64_t last; /* step that was begun, or resumed from; -1: none */
    struct saved latest;
    bool has_latest;
    int64_t saves;
    double stalls, untold; /* seconds: of all saves; since the last question */

    float *copy;
} save = {.last = -1};

static void copy_share(int64_t *from, int64_t *to) { state_share(world.replica, from, to); }

int64_t checkpoint_copy_bytes(void)
{
    int64_t from, to;
    if (!run_folder.path || !program.saving.given || !program.saving.async) return 0;
    copy_share(&from, &to);
    return 4 * STATE_KINDS * (to - from);
}

bool checkpoint_ready(struct device *d, double opened)
{
    find_close();
    save.opened = opened;
    save.saved_at = clock_seconds();
    save.mine = ROOM(double, CHECKPOINT_TELLS);
    save.all = ROOM(double, CHECKPOINT_TELLS *world.size);
    if (!run_folder.path) return true;
    if (run_folder.resumed) {
        save.last = run_folder.from.step;
        save.latest = run_folder.from;
        save.has_latest = true;
    }
    const int64_t bytes = checkpoint_copy_bytes();
    double mine[2], *all = ROOM(double, 2 * world.size);
    if (bytes > 0) save.copy = device_host_memory(d, bytes);
    part_ready(save.copy);
    mine[0] = (double)part_header_bytes();
    mine[1] = (double)part_elements();
    world_agree();
    world_exchange(mine, 2, all);
    save_at_hand.hash = ROOM(uint64_t, world.size);
    if (world.rank == 0) {
        int64_t *header = ROOM(int64_t, world.size), *elements = ROOM(int64_t, world.size);
        for (int r = 0; r < world.size; r++)
            header[r] = (int64_t)all[2 * r], elements[r] = (int64_t)all[2 * r + 1];
        manifest_ready(header, elements);
        data_fingerprint();
        find_tidy();
    }
    return writer_open();
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

/* Of the save at hand, so far. */
static double stall_now(void)
{
    return save.stall + (save.waiting_since > 0 ? clock_seconds() - save.waiting_since : 0);
}

/* Some rank has failed: all stop writing, what there is of it goes, and all leave with its words.
 */
_Noreturn static void give_up(void)
{
    char why[WHY_BYTES];
    double none = 0;
    part_cancel();
    while (writer_wait(MOST_MS)) {}
    if (writer_state() == SAVE_FAILED)
        fail_note("%s%s", save_at_hand.why, checkpoint_latest_text((char[512]){0}));
    world_exchange(&none, 1, save.all); /* nobody writes any more */
    if (world.rank == 0) folder_remove(run_folder.path, save_at_hand.temporary, why);
    world_agree();
    fail_now("a checkpoint failed, and no rank says why");
}

static void complete(void)
{
    char name[CHECKPOINT_NAME], bytes[32];
    const double seconds = clock_seconds() - save.begun, stall = stall_now();
    writer_set(SAVE_NONE);
    save.publishing = false;
    save.latest =
        (struct saved){.run = run_folder.run, .step = save_at_hand.at.step, .complete = true};
    save.has_latest = true;
    save.saves++;
    folder_name(&save.latest, name);
    say("checkpoint: %s: %s bytes in %.3f s, the run waited %.3f s", name,
        count_text((int64_t)save.bytes, bytes), seconds, stall);
}

bool checkpoint_out_of_time(void)
{
    return program.time_limit_seconds > 0 &&
           clock_seconds() - save.opened >= program.time_limit_seconds;
}

void checkpoint_tell(double *mine)
{
    memset(mine, 0, CHECKPOINT_TELLS * sizeof *mine);
    const double now = clock_seconds();
    if (world.rank == 0) {
        mine[TELL_DUE] = run_folder.path && program.saving.every_seconds > 0 &&
                         now - save.saved_at >= program.saving.every_seconds;
        mine[TELL_LIMIT] = checkpoint_out_of_time();
    }
    if (!run_folder.path) return;
    mine[TELL_STATE] = writer_state();
    mine[TELL_PROGRESS] = (double)part_progress();
    split_hash(save_at_hand.written.hash, &mine[TELL_HASH], &mine[TELL_HASH_TOP]);
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
            save_at_hand.hash[r] =
                joined_hash(all[r * stride + TELL_HASH], all[r * stride + TELL_HASH_TOP]);
        save.publishing = true;
        save_at_hand.at.spent.saves += stall_now();
        writer_give(JOB_PUBLISH);
    }
}

/* A disk that takes nothing for as long as a rank may be silent: rank 0 ends the run. */
static void watch_progress(void)
{
    double sum = 0;
    int writing = 0;
    for (int r = world.size - 1; r >= 0; r--) {
        const double *told = save.all + r * CHECKPOINT_TELLS;
        sum += told[TELL_PROGRESS] + told[TELL_STATE];
        if ((enum save_state)told[TELL_STATE] == SAVE_WRITING) writing = r;
    }
    const double now = clock_seconds();
    if (sum > save.seen || sum < save.seen) save.moved = now;
    save.seen = sum;
    if (world.rank == 0 && program.timeout_seconds > 0 &&
        now - save.moved > program.timeout_seconds)
        fail_now("rank %d has written nothing of the checkpoint of step %lld for %.3g s", writing,
                 (long long)save_at_hand.at.step, now - save.moved);
}

/* Outside a step: the same as at its end, for the save alone. */
static void meet(void)
{
    checkpoint_tell(save.mine);
    world_exchange(save.mine, CHECKPOINT_TELLS, save.all);
    checkpoint_told(save.all, CHECKPOINT_TELLS);
    watch_progress();
    save.met = clock_seconds();
}

/* While this rank itself writes, every few MiB. Those that have written meet in
 * checkpoint_finish. */
static void meet_now_and_then(void)
{
    if (clock_seconds() - save.met >= MEET_SECONDS) meet();
}

void checkpoint_finish(void)
{
    if (!run_folder.path || writer_state() == SAVE_NONE) return;
    save.moved = wait_begins();
    save.seen = -1;
    int64_t pause = FEWEST_MS;
    position_phase(PHASE_SAVE);
    while (writer_state() != SAVE_NONE) {
        /* while the thread writes, or until others have written */
        if (!writer_wait(pause) && pause > FEWEST_MS)
            nanosleep(&(struct timespec){.tv_nsec = pause * 1000000}, NULL);
        pause = 2 * pause < MOST_MS ? 2 * pause : MOST_MS;
        meet();
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
    struct save_at_hand *s = &save_at_hand;
    double mine[3] = {0};
    char name[CHECKPOINT_NAME];
    struct timespec now;
    uint64_t mark = 0;
    folder_name(&(struct saved){.run = run_folder.run, .step = s->at.step}, name);
    if (world.rank == 0) {
        clock_gettime(CLOCK_REALTIME, &now);
        mark = shuffle_mix((uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec +
                           (uint64_t)getpid());
        snprintf(s->temporary, sizeof s->temporary, "%s.partial-%016llx", name,
                 (unsigned long long)mark);
        mine[0] = !folder_begin(run_folder.path, s->temporary, s->why);
    }
    split_hash(mark, &mine[1], &mine[2]);
    world_exchange(mine, 3, save.all);
    if (save.all[0] > 0) {
        if (world.rank == 0) fail_note("%s%s", s->why, checkpoint_latest_text((char[512]){0}));
        world_agree();
    }
    snprintf(s->temporary, sizeof s->temporary, "%s.partial-%016llx", name,
             (unsigned long long)joined_hash(save.all[1], save.all[2]));
    snprintf(s->folder, sizeof s->folder, "%.3900s/%.190s", run_folder.path, s->temporary);
}

static void begin(struct device *d, const struct counters *at)
{
    checkpoint_finish();
    const double from = wait_begins();
    position_phase(PHASE_SAVE);
    save_at_hand.at = *at;
    save.last = at->step;
    save.begun = save.saved_at = save.moved = save.met = from;
    save.seen = -1;
    save.stall = 0;
    begin_folder();
    if (save.copy) {
        copy_out(d);
        writer_set(SAVE_WRITING);
        writer_give(JOB_PART);
    } else {
        writer_part_now(d, meet_now_and_then);
    }
    wait_ends();
    position_phase(PHASE_STEPS);
    if (!save.copy) checkpoint_finish();
}

void checkpoint_step(struct device *d, const struct counters *at, bool now)
{
    const int64_t every = program.saving.every_steps, forever = program.saving.keep_every;
    const bool due = (every > 0 && at->step % every == 0) ||
                     (forever > 0 && at->step % forever == 0); /* or there would be none to keep */
    if (run_folder.path && (due || now) && at->step != save.last) begin(d, at);
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
    if (!run_folder.path) return text;
    folder_name(&save.latest, name);
    if (save.has_latest)
        snprintf(text, 512, "; the last checkpoint is %.380s/%s", run_folder.path, name);
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

void checkpoint_describe(void)
{
    char every[64] = "at the end", keep[64] = "all stay", bytes[32];
    if (!run_folder.path) return;
    checkpoint_say_found();
    if (program.saving.every_steps > 0)
        snprintf(every, sizeof every, "every %lld steps", (long long)program.saving.every_steps);
    else if (program.saving.every_seconds > 0)
        snprintf(every, sizeof every, "every %.4g s", program.saving.every_seconds);
    if (program.saving.keep > 0)
        snprintf(keep, sizeof keep, "the newest %lld stay", (long long)program.saving.keep);
    const int64_t copy = checkpoint_copy_bytes();
    if (copy > 0)
        say("checkpoints: %s to %s, %s; written while training goes on from a second copy of %s "
            "bytes per rank",
            every, run_folder.path, keep, count_text(copy, bytes));
    else
        say("checkpoints: %s to %s, %s; written while the run waits%s", every, run_folder.path,
            keep,
            program.saving.given ? ""
                                 : " (a checkpoint section in the plan makes room for a copy)");
    if (run_folder.run > 1)
        say("checkpoints: this is run %lld of the folder, its checkpoints are called "
            "step-…-run%lld",
            (long long)run_folder.run, (long long)run_folder.run);
}

void checkpoint_summary(void)
{
    if (save.saves > 0)
        say("checkpoints: %lld saved, the run waited %.3f s for them%s", (long long)save.saves,
            save.stalls, checkpoint_latest_text((char[512]){0}));
}

void checkpoint_close(void)
{
    writer_close();
    folder_close();
}
