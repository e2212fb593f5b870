/* The interfaces of all parts of the runtime; generated files include only device.h and program.h.
 * One rank is one process. The main thread computes (cpu) or issues (cuda), one worker thread moves
 * data between ranks (cpu), and one watchdog thread watches. Everything is allocated before the
 * first step. The host accesses device memory only through device_write, device_read and
 * device_clear.
 *
 * Errors: before the first step they are noted (fail_note) and agreed on (world_agree): the lowest
 * rank with an error prints it, and all end with status 4. During a step a rank cannot wait for the
 * others: fail_now prints one line for the whole host and ends every rank. */
#ifndef PLANC_TRAINER_H
#define PLANC_TRAINER_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "device.h"
#include "program.h"
#include "world.h"
#include "formats/safetensors.h"

#define PRINTF_LIKE(f, a) __attribute__((format(printf, f, a)))

enum { STATUS_USAGE = 3, STATUS_ENVIRONMENT = 4, STATUS_STOPPED = 75 };

enum { OPTION_ALLOWS = 16 };
struct options {
    int64_t steps /* -1: as the plan says */, log_every /* 0: not given */;
    const char *metrics, *tensorboard, *final, *probe, *compare, *trace, *profile_out;
    bool explain, help;
    int64_t sample; /* tokens; 0: none */
    const char *prompt;
    const char *preflight; /* a file, and nothing is trained; NULL: a run */
    double temperature;    /* 0: greedy */
    int64_t seed;
    int64_t profile /* steps; 0: none */;
    const char *checkpoint_dir; /* NULL: as the plan says */
    bool fresh, resume;         /* never, or only from a checkpoint */
    int64_t resume_step;        /* -1: the newest */
    /* keys, with commas between, that may differ from the checkpoint's plan */
    const char *allow[OPTION_ALLOWS];
    int allows;
};

/* ── fail.c: the one way out, and the one way to speak ───────────────────────── */
/* Remembers the first message of this rank; false, so that `return fail_note(...)` reads. */
bool fail_note(const char *format, ...) PRINTF_LIKE(1, 2);
const char *fail_noted(void); /* NULL: none */
/* The first caller on this host prints one line; then every rank ends with status 4. */
_Noreturn void fail_now(const char *format, ...) PRINTF_LIKE(1, 2);
/* Every rank ends with this status. From any thread. */
_Noreturn void fail_end(int status);
/* The rank of this process, for say; `end` takes all ranks down. Until then: rank 0, and only this
 * process ends. */
void fail_as(int rank, void (*end)(int status));
void fail_print(const char *message); /* "trainer: MESSAGE" on stderr, in one write */
/* rank 0 only: a line on stdout */
void say(const char *format, ...) PRINTF_LIKE(1, 2);
/* From any thread: what is said from here on is kept, up to SAY_HELD_BYTES, and a line that waits
 * for a full pipe waits no longer. A launcher that was told to end reads no output any more. */
enum { SAY_HELD_BYTES = 1 << 15 };
void say_hold(void);
/* a piece of a line, shorter than PIPE_BUF */
void say_piece(const char *text, size_t n);
void say_draw(const char *text); /* on a terminal: in the place of the line before, which it was */
/* Says what was kept. Once something was held, a line that nobody reads for 5 s is lost. */
void say_release(void);
/* Zeroed memory for the whole run; only before the first step. Never NULL. */
void *room(int64_t bytes);
int64_t room_bytes(void); /* all of it so far */
#define ROOM(type, n) ((type *)room((int64_t)sizeof(type) * (n)))
/* monotonic, the same on all ranks of a host */
double clock_seconds(void);
const char *count_text(int64_t n, char text[32]); /* "8,030,261,248" */

/* ── signals.c: what a rank was asked to do, by whom ───────────────────────────── */
/* SIGTERM, SIGINT, SIGHUP and SIGUSR1 ask to save at the end of the step and to stop, SIGUSR2 to
 * save and to go on; what is ignored when the trainer starts stays so. Before MPI and all other
 * threads, which inherit that these are blocked. on_alarm: called by the thread that waits, on
 * SIGALRM. Leaves when there is no such thread. */
void signals_open(void (*on_alarm)(void));
/* Every rank of the run has opened them: says so to `planc run`, by the name of the thread that
 * waits (compiler/commands/launch.c). */
void signals_of_all(void);
/* what comes later is taken and means nothing, except SIGALRM */
void signals_close(void);
/* The first request to stop that this rank got: the signal's number, plus SIGNAL_OF_LAUNCHER when
 * its parent process sent it; 0: none. */
enum { SIGNAL_OF_LAUNCHER = 1000 };
int signals_stop(void);
/* How often this rank was asked to save and go on. */
int64_t signals_saves(void);
/* "SIGTERM", "SIGTERM from the launcher" */
const char *signals_text(int stop, char text[64]);

/* ── launcher.c ──────────────────────────────────────────────────────────────── */
/* Says when a group of FSDP lies on more hosts than it needs. Collective. */
void launcher_check_places(void);
/* Says when mpirun, told to end, would kill the ranks before a step is over and this many bytes are
 * saved. */
void launcher_warn(double step_seconds, int64_t saved_bytes);

/* ── agree.c: all ranks run the same thing ─────────────────────────────────────── */
/* agree_program and agree_files are collective, and leave when a rank has something else than rank
 * 0, saying what. */
/* the tables of the plan, the options, the bytes of the trainer itself */
void agree_program(const struct options *o);
/* A hash of the file of this trainer. */
uint64_t agree_own_program(void);
/* n files that are the same on all ranks: their sizes, and up to 64 MiB of what they hold. True:
 * no byte of them can differ, because all were compared or every rank opened the same files. */
struct agreed_file {
    const char *path;
    int fd;
    int64_t bytes;
};
bool agree_files(const char *what, const struct agreed_file *file, int64_t n);
/* After agree_files, with several ranks: rank r reads what rank (r + agree_shift) % size reads,
 * and the two compare it. Another shift each turn; to another host, where there are several. */
int agree_shift(int64_t turn);

/* ── predicted.c ─────────────────────────────────────────────────────────────── */
/* Seconds of a step; 0: the compiler did not predict one of this device. */
double predicted_step(void);
/* Of a whole kernel; 0: not predicted. */
double predicted_kernel(const char *name);

/* ── options.c ───────────────────────────────────────────────────────────────── */
/* What --help prints. */
extern const char options_help[];
/* Fills *o. False: what is wrong is noted. */
bool options_read(struct options *o, int argc, char **argv);

/* ── device_cpu.c, device_cuda.c: beyond the verbs of device.h ───────────────── */
/* what this rank runs on: is it there, can it run these kernels? false: noted */
bool device_find(void);
/* of its memory a rank may have; before the arena is taken; 0: unknown */
int64_t device_limit_bytes(void);
/* takes the arena, makes ready; false starts are noted, then NULL */
struct device *device_open(void);
int64_t device_predicted_bytes(void); /* the arena, in what memory is given out in */
/* of the arena, as the system has it; -1: cannot tell */
int64_t device_mapped_bytes(struct device *d);
double device_peak_flops(void); /* of program.compute_type, a second; 0: unknown */
const char *device_limit_text(int64_t limit,
                              char text[256]); /* "the 4 ranks of this host have 1,000 each" */
/* what fractions are of; limit: device_limit_bytes at start */
int64_t device_memory_bytes(int64_t limit);
int64_t device_peak_bytes(
    struct device *d); /* the most that this rank took so far, all in all; 0: unknown */
/* Two lines: what memory was taken; what the machine is, of whose ranks together do `flops`. */
void device_describe(struct device *d, double flops);
/* What is taken of the device's memory and is no part of the arena: when device_describe was
 * called, and now. False: the device has no memory of its own. */
bool device_outside_bytes(struct device *d, double before_and_now[2]);
/* What this rank's device calls itself: letters that JSON takes as they are. */
const char *device_name(void);
/* Whether this rank's device is what a cluster describes by these words, `name` its device and
 * `arch` its architecture ("": not said). */
bool device_is(const char *name, const char *arch);
/* What bits of results depend on beside the trainer: the processor and the library of products. */
const char *device_machine(char text[192]);
const char *device_peak_name(void); /* what device_peak_flops is, in a sentence: "FMA peak" */
/* What this rank runs on, in its makers' words; after device_open. */
struct device_identity {
    char name[96], driver[64], libraries[128];
};
void device_identify(struct device_identity *is);
void device_close(struct device *d);

/* Device memory from the host's side. In order with what was played before and what is played
 * after; `from` and `to` of the host are free when the call returns. device_read waits for the
 * compute lane. */
void device_write(struct device *d, void *to, const void *from, int64_t bytes);
void device_read(struct device *d, void *to, const void *from, int64_t bytes);
void device_clear(struct device *d, void *at, int64_t bytes);
/* program.staging_bytes of host memory that files pass through */
void *device_staging(struct device *d);
/* Host memory for a second copy of what is on the device, all of it there at once; before the first
 * step. NULL: noted. */
void *device_host_memory(struct device *d, int64_t bytes);
/* From the device to such memory, after all compute issued before; returns at once. device_copied
 * waits for all that was begun; until then nothing may change `from`. */
void device_copy_out(struct device *d, void *to, const void *from, int64_t bytes);
void device_copied(struct device *d);
/* What such a copy takes of the memory that device_limit_bytes is about. */
int64_t device_copy_bytes(int64_t bytes);

/* One call of a part of schedule.c. Between the trainer and the schedule, so that a device may
 * record and replay. */
enum play { PLAY_SETUP, PLAY_MICRO_BATCH, PLAY_UPDATE };
void device_play(struct device *d, enum play what, int micro);
void device_drain(struct device *d); /* returns when all that was issued is done */
/* from the watchdog's thread, now and then: takes over where the device stands */
void device_watch(void);
/* spent waiting for collectives since the last call; negative: unknown */
double device_exposed_seconds(struct device *d);

/* ── watchdog.c: ends a run in which a rank stands still ─────────────────────── */
void watchdog_open(void); /* collective; world_leave closes it */

/* ── position.c: where this rank stands, for the watchdog of every rank ──────── */
/* WRITE: rank 0 writes the weights, however long its disk takes; SAVE: all write a checkpoint;
 * SAMPLE: the model writes tokens */
enum phase { PHASE_START, PHASE_STEPS, PHASE_SAVE, PHASE_WRITE, PHASE_SAMPLE, PHASE_END };
void position_phase(enum phase phase);
void position_step(int64_t training_step); /* the optimizer step now running */
void position_set(int schedule_step);
void position_iteration(int64_t i);
void position_wait(bool waiting); /* this rank now depends on others */
void position_moved(void);
/* all of it, of a device that runs after its host */
void position_device(int schedule_step, int64_t iteration, bool waiting);
/* Where this rank stands: "at step 12 of the schedule (…) of training step 3"; the same of another
 * step of this training step. */
const char *position_text(char text[256]);
const char *position_of(int schedule_step, int64_t iteration, char text[256]);
/* true for the first caller on this host: it may print the last line */
bool position_claim(void);
bool position_claimed(void); /* by any rank */

/* ── machine.c: what is under us ─────────────────────────────────────────────── */
bool machine_has_features(void); /* of program.cpu_feature; false: noted */
/* FMA on F32, or on pairs of BF16 where the processor can; one core, measured for about 20 ms */
double machine_peak_flops(enum element_type type);
int64_t machine_available_bytes(void); /* 0: unknown */
/* as /proc/cpuinfo names it */
const char *machine_processor(void);
/* of this stretch of addresses; -1: cannot tell */
int64_t machine_mapped_bytes(const void *from, int64_t bytes);
int64_t machine_peak_bytes(void); /* largest resident size of this process so far */

/* ── schedule_lr.c ───────────────────────────────────────────────────────────── */
/* pure; numerics.md has the formula */
double schedule_lr(const struct program *p, int64_t step);

/* ── random.c ────────────────────────────────────────────────────────────────── */
uint64_t random_key(int64_t seed, const char *name);
/* Elements [from, from + n) of the standard normal sequence of this key, times `std`. */
void random_normal(uint64_t key, double std, int64_t from, int64_t n, float *to);

/* ── shuffle.c ───────────────────────────────────────────────────────────────── */
uint64_t shuffle_mix(uint64_t x);
/* Which of n samples stands at `place` of a shuffled epoch: for every seed and epoch a permutation
 * of [0, n). */
int64_t shuffle_place(int64_t seed, int64_t epoch, int64_t n, int64_t place);

/* ── segments.c: which stretch of which stored tensor a shard holds ──────────── */
/* One stored tensor: part `part` of `tensor` (0 when it is not stacked) of instance `instance` of
 * `unit`. */
struct stored {
    const struct unit *unit;
    const struct tensor *tensor;
    int64_t instance, part;
};
bool stored_first(struct stored *s);
bool stored_next(struct stored *s);
int64_t stored_count(void);
/* All of them as files list them: by name, numbers by their value, so that the order does not
 * depend on how layers were put into units. stored_count() items, in `room`. */
const struct stored *stored_sorted(void);
int64_t stored_elements(const struct stored *s);
int stored_shape(const struct stored *s, int64_t dim[4]); /* returns the rank */
enum { TENSOR_NAME_BYTES = 512 /* the compiler refuses longer ones */ };
void stored_name(const struct stored *s, char *to, size_t bytes);
/* The same as a JSON string with its quotes; `to` has room for any name. */
enum { TENSOR_JSON_BYTES = 6 * TENSOR_NAME_BYTES + 3 };
void stored_name_json(const struct stored *s, char to[TENSOR_JSON_BYTES]);
/* The overlap of a stored tensor with part `part` of the state (state_parts). count 0: none.
 * element: first, in the stored tensor; at: where it lies in that rank's resident part (elements
 * from the start of master, moments …). */
struct piece {
    int64_t element, at, count;
};
struct piece stored_piece(const struct stored *s, int64_t part);
/* Into how many parts, fsdp of them or one of each rank, master weights and moments of a unit are
 * cut; elements of one; the first rank that has it. */
int64_t state_parts(void);
int64_t state_part(const struct unit *u);
int state_owner(int64_t part);
/* Where the gradient of a piece is, as `at` says where its weights are. */
int64_t gradient_at(const struct stored *s, int64_t at);
/* The decay groups of a unit's part in order; at most unit->tensors. Returns how many. */
int segments_stretches(const struct unit *u, int64_t part, struct stretch *to);
/* An instance of a unit, and the stretches of its part on this rank: the same for all instances of
 * the unit. */
struct instance {
    const struct unit *unit;
    int64_t index;
    const struct stretch *stretch;
    int stretches;
    int64_t elements; /* of all stretches; the rest of the part is padding */
};
/* All instances, numbered as program.unit says. Valid for the whole run. */
struct instance *segments_instances(void);
bool segments_check(void); /* that program.c agrees with itself; false: noted */

/* ── weights.c ───────────────────────────────────────────────────────────────── */
bool weights_open(void);              /* program.init_from, where there is one; false: noted */
void weights_agree(void);             /* all ranks have the same files: agree_files */
bool weights_start(struct device *d); /* seeded, or from what was opened; false: noted */
/* before the first step: can it be written? false: noted */
bool weights_final_open(const char *path);
void weights_final_connect(void);     /* collective; saving then needs no launcher */
bool weights_final(struct device *d); /* every rank calls it; false: noted on rank 0 */

/* ── data.c ──────────────────────────────────────────────────────────────────── */
bool data_open(void);  /* false: noted */
void data_agree(void); /* all ranks have the same files: agree_files */
/* data.validation, after data_open; nothing where the plan has none. False: noted. */
bool data_validation_open(void);
void data_validation_agree(void);
int64_t data_validation_batches(void); /* global batches of a validation */
/* reads this rank's samples of one of them, the same on every mesh; as data_step */
int64_t data_validation_step(int64_t step, int64_t batch);
/* Of sizes and contents (stream.h), read once. */
uint64_t data_fingerprint(void);
/* Where a step begins whose predecessor ended at `sample`: behind batches that the plan skips. */
int64_t data_next(int64_t sample);
/* This rank's samples of a step that begins at `sample`, read ahead while the step before it ran;
 * its targets that are not masked. */
int64_t data_step(int64_t step, int64_t sample);
double data_wait_seconds(void); /* that data_step last waited for them */
/* The same samples once more, before the first step; their hash. False: noted. */
bool data_read_again(int64_t sample, uint64_t *hash);
/* Every sample of the first micro-batch becomes these sequence + 1 tokens. */
void data_fill(const int32_t *row);
/* of those samples and their places in the step; the ranks' add up to the step's */
uint64_t data_hash(void);
/* What this rank reads where rank (rank + data_shift) % size has its samples of the step: equal to
 * that rank's data_hash when both have the same files. data_shift 0: they do, and nobody asks. */
int data_shift(void);
uint64_t data_other_hash(void);
/* collective, where those differ: notes which sample, on the rank that saw it */
void data_find_difference(void);
/* starts: of each row the first row of its document; NULL: documents are not separate */
void data_batch(int64_t micro_batch, int32_t *tokens, int32_t *targets, int32_t *starts);
/* FLOPs of this rank's part of the step, forward and backward, full convention: of the pairs of
 * tokens that one document holds, where documents are separate. */
double data_flops(void);

/* ── sources.c: after data_open ──────────────────────────────────────────────── */
int64_t data_tokens(void);
bool data_is_text(void); /* tokens are the bytes of text */
/* steps that begin at sample `first` of the run's order */
void data_describe(int64_t first, int64_t steps);
/* Of a mixture: its sources (0: there is none), the samples of one of them among the first `sample`
 * of the run, and how often these are an epoch of it. */
int data_sources(void);
int64_t data_taken(int source, int64_t sample);
double data_epochs(int source, int64_t sample);

/* ── probe.c ─────────────────────────────────────────────────────────────────── */
bool probe_open(const char *path);
void probe_tap(struct device *d, const char *name, enum element_type type, const void *value,
               int64_t rows, int64_t columns);
/* after step 0; every rank calls it; false: noted */
bool probe_write(struct device *d, double loss, double norm);

/* ── metrics.c ───────────────────────────────────────────────────────────────── */
/* One step, known alike on all ranks. value: program.metrics' numbers one after the other. */
struct measured {
    int64_t step;
    double lr, grad_norm, seconds, exposed_seconds /* negative: unknown */, peak_bytes;
    uint64_t tokens_hash;
    double targets;       /* that count, on all ranks */
    double flops;         /* of the step, on all ranks; full convention */
    double stall_seconds; /* that the run waited for a checkpoint before this step */
    /* from the end of the step before to the first kernel of this one, and what of it samples were
     * waited for: of the slowest rank; negative: the first step */
    double gap_seconds, data_seconds;
    int64_t sample; /* of the run, behind this step */
    bool skipped;
    const double *value;
    /* after this step: cross-entropy of a target, seconds, batches; or, cut by a stop, no loss */
    bool validated, validation_cut;
    double validation_loss, validation_seconds;
    int64_t validation_batches;
};
/* first: the step that the run begins with; metrics_file.h says what happens to a file that is
 * there. */
bool metrics_open(const struct options *o, int64_t first, double machine_flops,
                  int64_t memory_limit);
/* numbers a step reports: sum of program.metric[].count */
int64_t metrics_count(void);
double metrics_cross_entropy(const double *value); /* of a step's metrics */
void metrics_step(const struct measured *m);
/* Of a validation that is made up for: to the line of its step, which an earlier process wrote. */
void metrics_validation(const struct measured *m);
void metrics_summary(void);
/* What was written so far is on the disk when it returns. From any thread. */
void metrics_sync(void);
bool metrics_whole(void); /* every step is in the file; false: noted on rank 0 */

#endif
