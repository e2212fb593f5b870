/* What the files of a rank's checkpoints share and the trainer does not see: the folder of this
 * run (checkpoint_find.c), and the save at hand with the thread that writes it
 * (checkpoint_writer.c). */
#ifndef PLANC_CHECKPOINT_RUN_H
#define PLANC_CHECKPOINT_RUN_H

#include "checkpoint.h"

/* ── checkpoint_find.c ───────────────────────────────────────────────────────── */
extern struct run_folder {
    const char *path; /* NULL: the run has no checkpoints */
    int64_t run;      /* its number in the folder */
    bool resumed;
    struct saved from; /* what it was resumed from */
} run_folder;
/* Rank 0, when a resumed run is about to begin: removes what `keep` does not hold any more, where
 * the run before was killed first. False: noted. */
bool find_tidy(void);
void find_close(void); /* the manifest that was read */

/* ── checkpoint_writer.c ─────────────────────────────────────────────────────── */
enum save_state { SAVE_NONE, SAVE_WRITING, SAVE_WRITTEN, SAVE_PUBLISHED, SAVE_FAILED };
/* The save at hand. The main thread fills it before it gives a job, and reads it when the job is
 * done; in between it is the writer's. */
extern struct save_at_hand {
    struct counters at;
    char temporary[2 * CHECKPOINT_NAME], folder[4096];
    struct part_written written;
    uint64_t *hash; /* of every rank's part; rank 0 */
    char why[WHY_BYTES];
} save_at_hand;
enum job { JOB_NONE, JOB_PART, JOB_PUBLISH, JOB_STOP };

bool writer_open(void); /* the thread; false: noted */
void writer_close(void);
enum save_state writer_state(void);
void writer_set(enum save_state state); /* main thread, while the writer has no job */
void writer_give(enum job job);
/* This rank's part, by the main thread, read from the device. Sets the state. between: called
 * every few MiB. */
void writer_part_now(struct device *d, void (*between)(void));
/* Until the thread has nothing to do, or that many milliseconds. True: it had something. */
bool writer_wait(int64_t milliseconds);

#endif
