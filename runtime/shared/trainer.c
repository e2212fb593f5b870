/* The training loop. What is computed is in the generated schedule.c, how in kernels.c, the numbers
 * of the plan in program.c, one step in step.c. Here is the rest: start together or not at all,
 * check the results of each step, save, continue or end. Every rank runs this same text; no branch
 * below depends on anything that could differ between ranks, except where rank 0 prints for all. */
#define _GNU_SOURCE
#include "checkpoint.h"
#include "preflight.h"
#include "sample.h"
#include "step.h"
#include "watch.h"

#include <fcntl.h>
#include <limits.h>
#include <malloc.h>
#include <math.h>
#include <unistd.h>

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

/* Whether the run can do what its options ask, before anything is opened. */
static void check_options(const struct options *o)
{
    if (o->steps < 0)
        fail_note("the plan does not say how many steps: schedule.steps or run.steps would, "
                  "--steps N does");
    else if (o->steps == 0 && (o->probe || o->compare))
        fail_note("%s looks at step 0, and this run has no steps: --steps 1",
                  o->probe ? "--probe" : "--compare");
    else if (device_find())
        segments_check();
    world_agree();
}

/* The files that the run reads; all ranks have the same ones. */
static void open_inputs(const struct options *o)
{
    const bool reads = o->steps > 0 || program.data_trains;
    if ((!reads || (data_open() && data_validation_open())) && !checkpoint_resumed())
        weights_open();
    world_agree();
    if (reads) data_agree();
    if (reads && program.data_validations) data_validation_agree();
    if (!checkpoint_resumed()) weights_agree();
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
    check_options(o);
    if (checkpoint_find(o, run) && o->probe && checkpoint_resumed())
        fail_note("--probe is of step 0, and this run goes on from step %lld: --fresh starts anew",
                  (long long)run->step);
    world_agree();

    const int64_t limit = device_limit_bytes(); /* before any of it is taken */
    struct device *d = open_device(limit);

    double machine_flops = device_peak_flops();
    world_sum(&machine_flops, 1);
    step_open();
    open_inputs(o);
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
    if (step_agreed()->suspect >= 0)
        fail_note("step %lld: the loss of rank %d is not finite%s%s", (long long)m->step,
                  step_agreed()->suspect, kept, latest);
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
    double *all = ROOM(double, 2 * world.size);
    world_exchange(told, 2, all);
    for (int i = 0; i < 2 * world.size; i++) most[i % 2] = fmax(most[i % 2], all[i]);
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

/* Why the run ends before its last step, to the person who started it. `asked`: by which signal; 0:
 * by none. */
static void say_stopped(int64_t step, int asked)
{
    char by[64];
    if (asked)
        say("stopped by %s after step %lld, as asked", signals_text(asked, by),
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
    const struct agreed *agreed = step_agreed();

    watch_step(0);
    device_play(d, PLAY_SETUP, 0);
    device_drain(d);
    position_phase(PHASE_STEPS);
    run.spent.starts += clock_seconds() - begun;
    if (run.step >= o.steps && checkpoint_resumed())
        say("step %lld of %lld: nothing is left to do%s", (long long)run.step, (long long)o.steps,
            run.step > o.steps && o.final ? "; --final is of the step that was resumed" : "");
    bool stop = !step_validate_again(d, &run);
    while (run.step < o.steps && !stop) {
        struct measured m = step_train(d, &run, first);
        if (agreed->other_data) refuse_data();
        if (m.step == 0) {
            probe_write(d, m.value[0], m.grad_norm);
            world_agree();
        }
        if (program.data_validations && run.step % program.validate_every == 0 && finite_step(&m))
            step_validate(d, &run, &m);
        metrics_step(&m);
        if (!finite_step(&m) && program.nonfinite == NONFINITE_STOP) refuse_step(&m);
        if (m.step == first + 1 && bytes_at_end(&o) > 0) launcher_warn(m.seconds, bytes_at_end(&o));
        const struct checkpoint_wish wish = checkpoint_wish();
        stop = agreed->stop || wish.end || agreed->out_of_time;
        if (stop || run.step == o.steps) continue; /* saved after the loop */
        if (agreed->save)
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
    int asked = agreed->stop;
    if (o.sample && !stop) {
        position_phase(PHASE_SAMPLE);
        asked = sample_write(d);
        position_phase(PHASE_END);
        stop = asked != 0;
    }
    metrics_whole();
    if (!stop && run.step > first && run.step - first == run.skipped - skipped)
        fail_note(
            "none of the %lld steps%s was finite: all were skipped, and no weight has changed",
            (long long)(run.step - first), first > 0 ? " since the run was resumed" : "");
    world_agree();
    if (stop) say_stopped(run.step, asked);
    checkpoint_close();
    device_close(d);
    world_leave(stop ? STATUS_STOPPED : 0);
}
