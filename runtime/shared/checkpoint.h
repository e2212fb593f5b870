/* Checkpoints: what is kept of a run so that it can go on as if it had never stopped. docs/
 * checkpoints.md has the format. For the trainer there are a dozen functions; the rest is between
 * checkpoint.c (when to save, what the ranks agree on), checkpoint_writer.c (the thread),
 * checkpoint_find.c (what to go on from), checkpoint_folder.c (names, lock, what is complete),
 * checkpoint_part.c (what a rank writes), checkpoint_manifest.c (what rank 0 writes last),
 * checkpoint_read.c and checkpoint_same.c (the way back). */
#ifndef PLANC_CHECKPOINT_H
#define PLANC_CHECKPOINT_H

#include "goodput.h"
#include "readings.h"
#include "trainer.h"

/* What a run is beside its tensors. step: steps done, so the next one's number; sample: the place
 * in the data where the next step begins (skipped batches not yet passed over); skipped: steps
 * whose update was not applied; restarts: how often the run was resumed; validates: a stop has cut
 * the validation behind the last step, so it is still to be made. spent: what the time went into;
 * read: which samples some of the steps have read. */
struct counters {
    int64_t step, sample, skipped, restarts;
    bool validates;
    struct spent spent;
    struct readings read;
};

/* ── checkpoint_find.c, for the trainer ──────────────────────────────────────── */
/* Finds what to resume, and sets *at to where the run goes on. Collective; false: noted. */
bool checkpoint_find(const struct options *o, struct counters *at);
bool checkpoint_wanted(void);  /* there is a folder to save to */
bool checkpoint_resumed(void); /* there is something to load */
/* What is resumed is not the newest: later steps are those of another run in the same folder. */
bool checkpoint_branches(void);
/* Every tensor of the checkpoint that was found, after data_open. Collective; false: noted. */
bool checkpoint_load(struct device *d, const struct options *o);
void checkpoint_say_first(void); /* the first line, where there is a folder */
void checkpoint_say_found(void); /* lines about what is there, and how the plan differs */

/* ── checkpoint.c, for the trainer ───────────────────────────────────────────── */
/* Host memory that a second copy will take; 0: saved while the run waits. */
int64_t checkpoint_copy_bytes(void);
/* Takes memory and the writer's thread. opened: when the process began, for run.time_limit.
 * Collective; false: noted. */
bool checkpoint_ready(struct device *d, double opened);
void checkpoint_describe(void); /* lines about the folder */

/* At the end of a step. Every rank tells the others CHECKPOINT_TELLS numbers, and gets theirs: of
 * rank r at all + r * stride. */
enum { CHECKPOINT_TELLS = 6 };
void checkpoint_tell(double *mine);
void checkpoint_told(const double *all, int64_t stride);
/* Why a run ends or saves early; told by the ranks. */
struct checkpoint_wish {
    bool save; /* its time has come, or a signal asked for it */
    bool end;  /* run.time_limit is over */
};
struct checkpoint_wish checkpoint_wish(void);
bool checkpoint_out_of_time(void); /* run.time_limit is over, by the clock of this rank */
/* After a step: saves when its turn has come or `now` says so. */
void checkpoint_step(struct device *d, const struct counters *at, bool now);
/* The last step: saved and complete when it returns. */
void checkpoint_end(struct device *d, const struct counters *at);
/* Whatever is being written is complete when it returns; nothing new is begun. */
void checkpoint_finish(void);
/* "; the last checkpoint is DIR/step-00000100", or "" */
const char *checkpoint_latest_text(char text[512]);
/* Seconds the run has waited for saves since the last call. */
double checkpoint_stall_seconds(void);
void checkpoint_summary(void);
void checkpoint_close(void);

/* ── checkpoint_folder.c: rank 0 but for folder_check ────────────────────────── */
enum { CHECKPOINT_NAME = 96 };
/* run 1 is the first of a folder; a run that starts anew, or from another step than the newest, has
 * a number of its own, so that its checkpoints and those of the one before are never mistaken. */
struct saved {
    int64_t run, step;
    bool complete;
};
void folder_name(const struct saved *s, char name[CHECKPOINT_NAME]);
/* Makes the folder where it is missing, takes its lock, removes what a killed save has left. False:
 * noted. *mark: what other ranks must find there (folder_check). */
bool folder_open(const char *path, uint64_t *mark);
/* Any rank: is this the folder that rank 0 has, and can it be written? False: noted. */
bool folder_check(const char *path, uint64_t mark);
/* All that is there, newest first: by run, then by step. Valid for the whole run; only at start. */
struct saved *folder_list(const char *path, int64_t *n);
void folder_close(void);
/* The rest is of the writer's thread too: false: `why` says what failed. */
enum { WHY_BYTES = 1024 };
bool folder_begin(const char *path, const char *temporary, char why[WHY_BYTES]);
bool folder_sync(const char *path, char why[WHY_BYTES]);
bool folder_publish(const char *path, const char *temporary, const char *name, char why[WHY_BYTES]);
/* Removes what `keep` and `keep_every` do not hold of run `run`, up to `step`. */
bool folder_prune(const char *path, int64_t run, int64_t step, char why[WHY_BYTES]);
bool folder_remove(const char *path, const char *name, char why[WHY_BYTES]);

/* ── checkpoint_part.c: what one rank writes ─────────────────────────────────── */
/* Tensors of a part: master weights, then first, then second moments; each the pieces of the stored
 * tensors that lie in this rank's share of its shard, in their order. */
enum state_kind { STATE_MASTER, STATE_MOMENT1, STATE_MOMENT2, STATE_KINDS };
/* Elements [from, to) of a shard's state are a replica's share of it. */
void state_share(int64_t replica, int64_t *from, int64_t *to);
/* The part of a stored tensor that rank (replica, shard) writes; count 0: none. */
struct piece state_piece(const struct stored *s, int64_t shard, int64_t replica);
/* Header and buffers; before the first step. copy: NULL, or where a second copy of the share is. */
bool part_ready(const float *copy);
int64_t part_header_bytes(void);
int64_t part_elements(void); /* of one kind, in this rank's part */
void part_name(int rank, char name[CHECKPOINT_NAME]);
/* Bytes of this rank's part so far, for the watchdog; and a request to stop early. */
int64_t part_progress(void);
void part_cancel(void);
struct part_written {
    uint64_t hash;
    int64_t bytes;
};
/* Writes it: from the copy, or from the device (d not NULL; main thread only) in pieces, with
 * `between` called after each. */
bool part_write(const char *folder, int64_t step, struct device *d, void (*between)(void),
                struct part_written *written, char why[WHY_BYTES]);
/* path of a part into a hash, as it is written; false: `why`. */
bool part_hash(const char *path, int64_t bytes, uint64_t *hash, char why[WHY_BYTES]);
bool write_exactly(int fd, const void *bytes, int64_t n);

/* ── checkpoint_manifest.c ───────────────────────────────────────────────────── */
/* All text that does not change with the step; rank 0, before the first step. */
void manifest_ready(const int64_t *header_bytes, const int64_t *elements);
bool manifest_write(const char *folder, const struct counters *at, int64_t run,
                    const uint64_t *hash, char why[WHY_BYTES]);
uint64_t manifest_hash(const char *text, int64_t n);
/* A double holds no 64 bits; two hold them. */
void split_hash(uint64_t hash, double *low, double *top);
uint64_t joined_hash(double low, double top);

/* ── checkpoint_read.c ───────────────────────────────────────────────────────── */
struct manifest; /* a manifest that was read and is right in itself */
/* The manifest of `saved`, which lies in `folder`. NULL: noted, with `instead` after what is
 * wrong. */
struct manifest *manifest_read(const char *folder, const struct saved *saved, uint64_t *hash,
                               const char *instead);
struct counters manifest_counters(const struct manifest *m);
const char *manifest_text(const struct manifest *m, char text[256]); /* "saved …, fsdp 2 x dp 1" */
/* Every part's size and hash, shared out over the ranks; then all tensors. false: noted */
bool manifest_verify(const struct manifest *m, const char *folder, const char *instead);
bool manifest_load(const struct manifest *m, const char *folder, struct device *d);
void manifest_close(struct manifest *m);
const char *manifest_path(const struct manifest *m);
const struct json_t *manifest_root(const struct manifest *m);

/* ── checkpoint_same.c ───────────────────────────────────────────────────────── */
/* Whether each key of --allow is one of the plan or of the checkpoint (NULL: there is none). False:
 * noted. */
bool manifest_knows_allowed(const struct manifest *m, const struct options *o);
/* Compares the plan with it; false: noted. *changed: what differs and may, for the log. */
bool manifest_same_plan(const struct manifest *m, const struct options *o, const char **changed);
/* Compares the data: what the files hold, and what some steps have read. Collective; false:
 * noted. */
bool manifest_same_data(const struct manifest *m, const struct options *o);

#endif
