/* The training loop. What is computed is in the generated schedule.c, how in kernels.c, the numbers
 * of the plan in program.c. Here is the rest: start together or not at all, give each step its
 * scalars and tokens, check the results, agree on them, continue or end. Every rank runs this same
 * text; no branch below depends on anything that could differ between ranks, except where rank 0
 * prints for all. */
#define _GNU_SOURCE
#include "checkpoint.h"
#include "preflight.h"
#include "sample.h"
#include "watch.h"

#include <fcntl.h>
#include <limits.h>
#include <malloc.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* ── one step ────────────────────────────────────────────────────────────────── */

/* What a rank tells the others at the end of a step, before the metrics themselves. */
enum {
    TELL_STOP,
    TELL_SAVES,
    TELL_SKIP,
    TELL_EXPOSED,
    TELL_PEAK,
    TELL_GAP,
    TELL_DATA,
    TELL_HASH,
    TELL_HASH_TOP,
    TELL_OTHER,
    TELL_OTHER_TOP,
    TELL_FLOPS,
    TELL_CHECKPOINT,
    TELL_METRICS = TELL_CHECKPOINT + CHECKPOINT_TELLS
};

static struct {
    /* told: TELL_METRICS + metrics_count() numbers, of this rank and of every rank */
    double *mine, *all;
    double *value;              /* the metrics of the step, of all ranks together */
    float scalar[SCALAR_COUNT]; /* as the device has them */
    int stop;                   /* what signals_stop() is on the lowest rank that was asked; 0 */
    bool save;                  /* asked to save at the end of this step, and to go on */
    int64_t saves;              /* requests to save that were agreed on so far */
    int suspect;                /* lowest rank whose own loss was not finite; -1 */
    double ended, gap; /* when the last step's kernels were done, and from then to this step's */
    bool other_data;   /* two ranks have read other samples where they should be equal */
    bool out_of_time;  /* run.time_limit has ended a validation */
} step_state;

/* Targets that count, of all micro-batches and ranks. Without a masked id nobody has to ask. */
static double valid_targets(int64_t mine)
{
    double own = (double)mine, sum = 0;
    if (!program.has_ignore) return (double)(program.global * program.sequence);
    world_exchange(&own, 1, step_state.all);
    for (int r = 0; r < world.size; r++) sum += step_state.all[r];
    return sum;
}

/* Moments have seen as many gradients as there were updates: a step that is skipped counts neither
 * in them nor in t. */
static void set_scalars(struct device *d, const struct counters *run, double valid)
{
    const double t = (double)(run->step - run->skipped + 1),
                 shares = (double)(program.accumulation * world.size);
    float *s = step_state.scalar;
    memset(s, 0, sizeof step_state.scalar);
    s[SCALAR_LR] = (float)schedule_lr(&program, run->step);
    s[SCALAR_BIAS1] = (float)(1 - pow(program.beta1, t));
    s[SCALAR_BIAS2] = (float)(1 - pow(program.beta2, t));
    s[SCALAR_LOSS_SCALE] = (float)(valid > 0 ? shares / valid : 0);
    device_write(d, local(d, program.scalars), s, sizeof step_state.scalar);
}

static void clear_metrics(struct device *d)
{
    for (int i = 0; i < program.metrics; i++)
        device_clear(d, local(d, program.metric[i].offset),
                     program.metric[i].count * (int64_t)sizeof(double));
}

static uint64_t hash_of(const double *told)
{
    return (uint64_t)told[0] + ((uint64_t)told[1] << 32);
}

/* Every rank tells what it has and adds up what all have in the order of ranks, so all know the
 * same bits. */
static void combine(struct device *d, struct measured *m)
{
    const int64_t metrics = metrics_count(), n = TELL_METRICS + metrics;
    const double shares = (double)(program.accumulation * world.size);
    double *mine = step_state.mine, *to = mine + TELL_METRICS;
    device_read(d, step_state.scalar, local(d, program.scalars), sizeof step_state.scalar);
    mine[TELL_STOP] = signals_stop();
    mine[TELL_SAVES] = (double)signals_saves();
    mine[TELL_SKIP] = (double)step_state.scalar[SCALAR_SKIP];
    mine[TELL_EXPOSED] = device_exposed_seconds(d);
    mine[TELL_PEAK] = (double)device_peak_bytes(d);
    mine[TELL_GAP] = step_state.gap;
    mine[TELL_DATA] = data_wait_seconds();
    mine[TELL_HASH] = (double)(data_hash() & UINT32_MAX); /* a double holds no 64 bits */
    mine[TELL_HASH_TOP] = (double)(data_hash() >> 32);
    mine[TELL_OTHER] = (double)(data_other_hash() & UINT32_MAX);
    mine[TELL_OTHER_TOP] = (double)(data_other_hash() >> 32);
    mine[TELL_FLOPS] = data_flops();
    checkpoint_tell(mine + TELL_CHECKPOINT);
    for (int i = 0; i < program.metrics; to += program.metric[i].count, i++)
        device_read(d, to, local(d, program.metric[i].offset),
                    program.metric[i].count * (int64_t)sizeof(double));
    world_exchange(mine, n, step_state.all);
    checkpoint_told(step_state.all + TELL_CHECKPOINT, n);

    memset(step_state.value, 0, (size_t)metrics * sizeof(double));
    step_state.suspect = -1;
    step_state.other_data = false;
    int64_t saves = 0;
    for (int r = 0; r < world.size; r++) {
        const double *told = step_state.all + r * n;
        if (!step_state.stop) step_state.stop = (int)told[TELL_STOP];
        if ((int64_t)told[TELL_SAVES] > saves) saves = (int64_t)told[TELL_SAVES];
        m->skipped = m->skipped || told[TELL_SKIP] > 0;
        m->exposed_seconds = told[TELL_EXPOSED] < 0 || m->exposed_seconds < 0
                                 ? -1
                                 : m->exposed_seconds + told[TELL_EXPOSED] / world.size;
        m->peak_bytes = fmax(m->peak_bytes, told[TELL_PEAK]);
        m->gap_seconds = fmax(m->gap_seconds, told[TELL_GAP]);
        m->data_seconds = fmax(m->data_seconds, told[TELL_DATA]);
        m->tokens_hash += hash_of(told + TELL_HASH);
        m->flops += told[TELL_FLOPS];
        const double *other = step_state.all + (r + data_shift()) % world.size * n;
        if (data_shift() && hash_of(told + TELL_OTHER) != hash_of(other + TELL_HASH))
            step_state.other_data = true;
        if (step_state.suspect < 0 && !isfinite(told[TELL_METRICS])) step_state.suspect = r;
        for (int64_t i = 0; i < metrics; i++)
            step_state.value[i] += told[TELL_METRICS + i] / shares;
    }
    /* a launcher sends it to all ranks, which get it on either side of a step's end: one request */
    step_state.save = saves > step_state.saves;
    step_state.saves = saves;
    m->value = step_state.value;
    m->grad_norm = (double)step_state.scalar[SCALAR_NORM];
}

/* The step that `run` stands at, and where that leaves it. */
static struct measured train_step(struct device *d, struct counters *run, int64_t first)
{
    const double begun = clock_seconds();
    const int64_t step = run->step, sample = data_next(run->sample);
    struct measured m = {
        .step = step, .lr = schedule_lr(&program, step), .gap_seconds = -1, .data_seconds = -1};

    m.stall_seconds = checkpoint_stall_seconds();
    position_step(step);
    m.targets = valid_targets(data_step(step, sample));
    set_scalars(d, run, m.targets);
    clear_metrics(d);

    watch_step(step - first);
    step_state.gap = step > first ? clock_seconds() - step_state.ended : -1;
    for (int64_t j = 0; j < program.accumulation; j++)
        device_play(d, PLAY_MICRO_BATCH,
                    (j == 0 ? MICRO_FIRST : 0) | (j + 1 == program.accumulation ? MICRO_LAST : 0));
    device_play(d, PLAY_UPDATE, 0);
    device_drain(d);
    step_state.ended = clock_seconds();
    watch_step_end(d, step - first, clock_seconds() - begun);

    position_set(0);
    combine(d, &m);
    m.seconds = clock_seconds() - begun;
    watch_step_took(step - first, m.seconds);
    readings_add(&run->read, (struct reading){step, sample, m.tokens_hash});
    run->step++;
    run->validates = false;
    m.sample = run->sample = sample + program.global;
    run->skipped += m.skipped;
    run->spent.saves += m.stall_seconds;
    if (!m.skipped) run->spent.steps += m.seconds;
    return m;
}

/* A validation is no reason to lose a run: does one of the ranks, each of which has told `n`
 * numbers and these two behind them, want to stop? */
enum { TELL_ASKED, TELL_TIME, VALIDATION_TELLS };
static void tell_validation(double *mine)
{
    mine[TELL_ASKED] = signals_stop();
    mine[TELL_TIME] = world.rank == 0 && checkpoint_out_of_time();
}
static bool ends_validation(int64_t n)
{
    for (int r = 0; r < world.size && !step_state.stop; r++)
        step_state.stop = (int)step_state.all[r * (n + VALIDATION_TELLS) + n + TELL_ASKED];
    step_state.out_of_time = step_state.all[n + TELL_TIME] > 0;
    return step_state.stop || step_state.out_of_time;
}

/* The mean cross-entropy of a target of data.validation, whatever the mesh. Forward only: what it
 * writes, activations and metrics, the next step writes before it reads. A request to stop ends it
 * after a batch, and what the batches until then say is no loss of this validation. */
static void validate(struct device *d, struct counters *run, struct measured *m)
{
    const double begun = clock_seconds(), shares = (double)(program.accumulation * world.size);
    const int64_t metrics = metrics_count(), batches = data_validation_batches();
    double *mine = step_state.mine, loss = 0, targets = 0;
    bool ends = step_state.stop || checkpoint_wish().end;
    int64_t b = 0;
    while (b < batches && !ends) {
        const double valid = valid_targets(data_validation_step(m->step, b));
        set_scalars(d, run, valid);
        clear_metrics(d);
        for (int64_t j = 0; j < program.accumulation; j++)
            device_play(d, PLAY_MICRO_BATCH,
                        MICRO_FORWARD | (j == 0 ? MICRO_FIRST : 0) |
                            (j + 1 == program.accumulation ? MICRO_LAST : 0));
        device_drain(d);
        double *to = mine;
        for (int i = 0; i < program.metrics; to += program.metric[i].count, i++)
            device_read(d, to, local(d, program.metric[i].offset),
                        program.metric[i].count * (int64_t)sizeof(double));
        tell_validation(to);
        world_exchange(mine, metrics + VALIDATION_TELLS, step_state.all);
        ends = ends_validation(metrics);
        for (int64_t i = 0; i < metrics; i++) mine[i] = 0;
        for (int r = 0; r < world.size; r++)
            for (int64_t i = 0; i < metrics; i++)
                mine[i] += step_state.all[r * (metrics + VALIDATION_TELLS) + i] / shares;
        loss += valid * metrics_cross_entropy(mine);
        targets += valid;
        b++;
    }
    position_set(0);
    device_exposed_seconds(d); /* it is no step's */
    m->validated = b == batches;
    m->validation_cut = run->validates = b < batches;
    m->validation_loss = targets > 0 ? loss / targets : 0;
    m->validation_batches = b;
    m->validation_seconds = clock_seconds() - begun;
    run->spent.validations += m->validation_seconds;
}

/* The validation that a stop has cut in the process before, behind the last step that it did. */
static bool validate_again(struct device *d, struct counters *run)
{
    struct measured m = {.step = run->step - 1};
    if (!run->validates || !program.data_validations || run->step % program.validate_every)
        return true;
    validate(d, run, &m);
    metrics_validation(&m);
    return !m.validation_cut;
}

/* ── coming up ───────────────────────────────────────────────────────────────── */

/* MPI takes and gives back temporary memory in every call; by default that is mapped and unmapped,
 * a page fault every 4 KiB. A refusal of these wishes costs speed only. */
static void keep_freed_memory(void)
{
    mallopt(M_MMAP_MAX, 0);
    mallopt(M_TRIM_THRESHOLD, INT_MAX);
    mallopt(M_ARENA_MAX, 1);
}

static void introduce(struct device *d, const struct options *o, const struct counters *run,
                      double machine_flops)
{
    char a[32];
    const struct program *p = &program;
    checkpoint_say_first();
    say("plan: %s (%s), device %s", p->title, p->plan_path, p->device);
    say("mesh: %d rank%s = fsdp %lld x dp %lld%s", world.size, world.size == 1 ? "" : "s",
        (long long)p->fsdp, (long long)p->dp, p->parts ? ", optimizer all" : "");
    say("batch: global %lld = %d rank%s x %lld local x %lld accumulation, sequence %lld: %s tokens "
        "a step",
        (long long)p->global, world.size, world.size == 1 ? "" : "s", (long long)p->local,
        (long long)p->accumulation, (long long)p->sequence, count_text(p->global * p->sequence, a));
    say("parameters: %s", count_text(p->parameters, a));
    device_describe(d, machine_flops);
    if (!checkpoint_resumed()) say("weights: %s", p->init_from ? p->init_from : "seeded");
    data_describe(run->sample, o->steps > run->step ? o->steps - run->step : 0);
    checkpoint_describe();
}

static void explain(void)
{
    const struct program *p = &program;
    char a[32], b[32];
    for (int i = 0; i < p->units; i++)
        say("unit %s: %lld x %s elements, %s per rank, %d tensors", p->unit[i].name,
            (long long)p->unit[i].count, count_text(p->unit[i].elements, a),
            count_text(p->unit[i].shard, b), p->unit[i].tensors);
    for (int i = 0; i < p->metrics; i++)
        say("metric %s: %lld", p->metric[i].name, (long long)p->metric[i].count);
    for (int i = 1; i <= p->steps; i++)
        say("step %d: %s, %s", i, p->step[i].region, p->step[i].what);
}

/* The weights and moments that the run begins with, or goes on from. */
static bool begin_state(struct device *d, const struct options *o)
{
    return checkpoint_resumed() ? checkpoint_load(d, o) : weights_start(d);
}

/* The arena is taken, and is what the compiler laid out. */
static struct device *open_device(int64_t limit)
{
    char need[32], have[256];
    const int64_t needs = device_predicted_bytes() + device_copy_bytes(checkpoint_copy_bytes());
    if (limit > 0 && needs > limit)
        fail_note("rank %d: needs %s bytes; %s", world.rank, count_text(needs, need),
                  device_limit_text(limit, have));
    world_agree();
    struct device *d = device_open();
    world_agree();
    const int64_t mapped = device_mapped_bytes(d), expected = device_predicted_bytes();
    if (mapped != expected)
        fail_note("rank %d: the ledger has %lld bytes, the system gave %lld", world.rank,
                  (long long)expected, (long long)mapped);
    world_agree();
    return d;
}

/* --preflight, in the place of a run. */
_Noreturn static void preflight(const struct options *o)
{
    if (device_find() && segments_check()) preflight_open(o->preflight);
    world_agree();
    const int64_t limit = device_limit_bytes();
    struct device *d = open_device(limit);
    launcher_check_places();
    position_phase(PHASE_STEPS);
    preflight_run(d, limit);
    position_phase(PHASE_END);
    world_agree();
    device_close(d);
    world_leave(0);
}

static struct device *come_up(struct options *o, struct counters *run, double begun, int argc,
                              char **argv)
{
    world_open(&argc, &argv);
    options_read(o, argc, argv);
    world_agree_or(STATUS_USAGE);
    if (o->help) {
        say("%s", options_help);
        world_leave(0);
    }
    if (o->steps < 0 && program.run_steps > 0) o->steps = program.run_steps;
    agree_program(o);
    world_split();
    watchdog_open();
    if (o->preflight) preflight(o);
    if (o->steps < 0)
        fail_note("the plan does not say how many steps: schedule.steps or run.steps would, "
                  "--steps N does");
    else if (o->steps == 0 && (o->probe || o->compare))
        fail_note("%s looks at step 0, and this run has no steps: --steps 1",
                  o->probe ? "--probe" : "--compare");
    else if (device_find())
        segments_check();
    world_agree();
    if (checkpoint_find(o, run) && o->probe && checkpoint_resumed())
        fail_note("--probe is of step 0, and this run goes on from step %lld: --fresh starts anew",
                  (long long)run->step);
    world_agree();

    const int64_t limit = device_limit_bytes(); /* before any of it is taken */
    struct device *d = open_device(limit);

    double machine_flops = device_peak_flops();
    world_sum(&machine_flops, 1);
    const int64_t told = TELL_METRICS + metrics_count();
    step_state.mine = ROOM(double, told);
    step_state.all = ROOM(double, told *world.size);
    step_state.value = ROOM(double, metrics_count());
    const bool reads = o->steps > 0 || program.data_trains;
    if (!reads || (data_open() && data_validation_open()))
        checkpoint_resumed() ? true : weights_open();
    world_agree();
    if (reads) data_agree();
    if (reads && program.data_validations) data_validation_agree();
    if (!checkpoint_resumed()) weights_agree();
    watch_open(d, o, run->step); /* measures in memory that is the weights' afterwards */
    world_agree();
    begin_state(d, o);
    world_agree();
    checkpoint_ready(d, begun);
    if (metrics_open(o, run->step, machine_flops, device_memory_bytes(limit)) &&
        (!o->final || weights_final_open(o->final)) && (!o->probe || probe_open(o->probe)))
        sample_open(o);
    world_agree();
    if (o->final) weights_final_connect();
    introduce(d, o, run, machine_flops);
    launcher_check_places();
    if (o->explain) explain();
    return d;
}

/* ── the run ─────────────────────────────────────────────────────────────────── */

static bool finite_step(const struct measured *m)
{
    return !m->skipped && isfinite(m->value[0]) && isfinite(m->grad_norm);
}

/* All ranks come here with the same numbers; the lowest speaks. What is being written is the state
 * before this step, and worth its while. */
static void refuse_step(const struct measured *m)
{
    char latest[512];
    checkpoint_finish();
    checkpoint_latest_text(latest);
    const char *kept = m->skipped ? "; the weights are those before this step" : "";
    if (step_state.suspect >= 0)
        fail_note("step %lld: the loss of rank %d is not finite%s%s", (long long)m->step,
                  step_state.suspect, kept, latest);
    else
        fail_note("step %lld: loss %g, gradient norm %g on all ranks: not finite%s%s",
                  (long long)m->step, m->value[0], m->grad_norm, kept, latest);
    world_agree();
}

/* Nothing of this step is saved. */
static void refuse_data(void)
{
    checkpoint_finish();
    data_find_difference();
    world_agree();
    fail_note("data.train: a file has changed while it was read"); /* now they agree again */
    world_agree();
}

/* What came to the device's memory during the run: connections, graphs, kernels of libraries. The
 * most of any rank. */
static void say_outside(struct device *d)
{
    char a[32], b[32], c[32];
    double told[2], most[2] = {0};
    if (!device_outside_bytes(d, told)) return;
    world_exchange(told, 2, step_state.all);
    for (int i = 0; i < 2 * world.size; i++) most[i % 2] = fmax(most[i % 2], step_state.all[i]);
    say("memory per rank: outside the arena at most %s bytes after the last step, %s before the "
        "first; %s assumed",
        count_text((int64_t)most[1], a), count_text((int64_t)most[0], b),
        count_text(program.outside_bytes, c));
}

static void save(struct device *d, enum phase then)
{
    position_phase(PHASE_WRITE);
    weights_final(d);
    world_agree();
    position_phase(then);
}

/* Asked to save and to go on, at the end of a step that is not the last. */
static void save_and_go_on(struct device *d, const struct options *o, const struct counters *run)
{
    checkpoint_step(d, run, true);
    if (o->final) {
        save(d, PHASE_STEPS);
        say("weights: saved to %s after step %lld, as SIGUSR2 asked", o->final,
            (long long)run->step - 1);
    } else if (!checkpoint_wanted()) {
        say("SIGUSR2: nothing is saved without a folder for checkpoints or --final FILE");
    }
}

/* What the end of a run writes on the slowest host. */
static int64_t bytes_at_end(const struct options *o)
{
    return (o->final ? 4 * program.parameters : 0) +
           (checkpoint_wanted() ? 12 * program.parameters / world.size * world.host_size : 0);
}

/* Why the run ends before its last step, to the person who started it. */
static void say_stopped(int64_t step)
{
    char by[64];
    if (step_state.stop)
        say("stopped by %s after step %lld, as asked", signals_text(step_state.stop, by),
            (long long)step - 1);
    else
        say("stopped by run.time_limit after step %lld", (long long)step - 1);
}

/* Whoever starts a trainer with a closed stdout would find its log in the weights: the next file
 * that is opened gets its number. */
static bool have_standard_files(void)
{
    int file;
    do file = open("/dev/null", O_RDWR);
    while (file >= 0 && file <= STDERR_FILENO);
    return file >= 0 && close(file) == 0;
}

int main(int argc, char **argv)
{
    const double begun = clock_seconds();
    struct options o;
    struct counters run;
    if (!have_standard_files()) return STATUS_ENVIRONMENT;
    keep_freed_memory();
    struct device *d = come_up(&o, &run, begun, argc, argv);
    const struct spent at_begin = run.spent;
    const int64_t first = run.step, skipped = run.skipped;
    bool stop = false;

    watch_step(0);
    device_play(d, PLAY_SETUP, 0);
    device_drain(d);
    position_phase(PHASE_STEPS);
    run.spent.starts += clock_seconds() - begun;
    if (run.step >= o.steps && checkpoint_resumed())
        say("step %lld of %lld: nothing is left to do%s", (long long)run.step, (long long)o.steps,
            run.step > o.steps && o.final ? "; --final is of the step that was resumed" : "");
    stop = !validate_again(d, &run);
    while (run.step < o.steps && !stop) {
        struct measured m = train_step(d, &run, first);
        if (step_state.other_data) refuse_data();
        if (m.step == 0) {
            probe_write(d, m.value[0], m.grad_norm);
            world_agree();
        }
        if (program.data_validations && run.step % program.validate_every == 0 && finite_step(&m))
            validate(d, &run, &m);
        metrics_step(&m);
        if (!finite_step(&m) && program.nonfinite == NONFINITE_STOP) refuse_step(&m);
        if (m.step == first + 1 && bytes_at_end(&o) > 0) launcher_warn(m.seconds, bytes_at_end(&o));
        const struct checkpoint_wish wish = checkpoint_wish();
        stop = step_state.stop || wish.end || step_state.out_of_time;
        if (stop || run.step == o.steps) continue; /* saved after the loop */
        if (step_state.save)
            save_and_go_on(d, &o, &run);
        else
            checkpoint_step(d, &run, wish.save);
    }
    if (run.step > first) checkpoint_end(d, &run);
    if (o.final) save(d, PHASE_END);
    position_phase(PHASE_END);
    say_release();
    metrics_summary();
    checkpoint_summary();
    run.spent.saves += checkpoint_stall_seconds();
    if (run.step > first) goodput_say(&run.spent, &at_begin, clock_seconds() - begun, run.restarts);
    say_outside(d);
    if (!stop) {
        watch_close(d);
        world_agree();
    }
    if (o.final) say("weights: saved to %s", o.final);
    if (o.sample && !stop) {
        position_phase(PHASE_SAMPLE);
        step_state.stop = sample_write(d);
        position_phase(PHASE_END);
        stop = step_state.stop != 0;
    }
    metrics_whole();
    if (!stop && run.step > first && run.step - first == run.skipped - skipped)
        fail_note(
            "none of the %lld steps%s was finite: all were skipped, and no weight has changed",
            (long long)(run.step - first), first > 0 ? " since the run was resumed" : "");
    world_agree();
    if (stop) say_stopped(run.step);
    checkpoint_close();
    device_close(d);
    world_leave(stop ? STATUS_STOPPED : 0);
}
