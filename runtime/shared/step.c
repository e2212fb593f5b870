/* One step: give it its scalars and tokens, compute, and agree on what came of it. What ranks must
 * know of each other by the end of a step goes in one exchange: metrics, requests to stop or save,
 * hashes of what was read. All add it up in the order of ranks, so all have the same bits and take
 * the same branches. A validation is the forward part of the same. */
#include "step.h"
#include "watch.h"

#include <math.h>
#include <string.h>

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
    int64_t saves;              /* requests to save that were agreed on so far */
    double ended, gap; /* when the last step's kernels were done, and from then to this step's */
} step_state;
static struct agreed agreed;

const struct agreed *step_agreed(void) { return &agreed; }

void step_open(void)
{
    const int64_t told = TELL_METRICS + metrics_count();
    step_state.mine = ROOM(double, told);
    step_state.all = ROOM(double, told *world.size);
    step_state.value = ROOM(double, metrics_count());
}

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
    agreed.suspect = -1;
    agreed.other_data = false;
    int64_t saves = 0;
    for (int r = 0; r < world.size; r++) {
        const double *told = step_state.all + r * n;
        if (!agreed.stop) agreed.stop = (int)told[TELL_STOP];
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
            agreed.other_data = true;
        if (agreed.suspect < 0 && !isfinite(told[TELL_METRICS])) agreed.suspect = r;
        for (int64_t i = 0; i < metrics; i++)
            step_state.value[i] += told[TELL_METRICS + i] / shares;
    }
    /* a launcher sends it to all ranks, which get it on either side of a step's end: one request */
    agreed.save = saves > step_state.saves;
    step_state.saves = saves;
    m->value = step_state.value;
    m->grad_norm = (double)step_state.scalar[SCALAR_NORM];
}

struct measured step_train(struct device *d, struct counters *run, int64_t first)
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
    for (int r = 0; r < world.size && !agreed.stop; r++)
        agreed.stop = (int)step_state.all[r * (n + VALIDATION_TELLS) + n + TELL_ASKED];
    agreed.out_of_time = step_state.all[n + TELL_TIME] > 0;
    return agreed.stop || agreed.out_of_time;
}

/* Forward only: what it writes, activations and metrics, the next step writes before it reads. What
 * the batches until a request to stop say is no loss of this validation. */
void step_validate(struct device *d, struct counters *run, struct measured *m)
{
    const double begun = clock_seconds(), shares = (double)(program.accumulation * world.size);
    const int64_t metrics = metrics_count(), batches = data_validation_batches();
    double *mine = step_state.mine, loss = 0, targets = 0;
    bool ends = agreed.stop || checkpoint_wish().end;
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

bool step_validate_again(struct device *d, struct counters *run)
{
    struct measured m = {.step = run->step - 1};
    if (!run->validates || !program.data_validations || run->step % program.validate_every)
        return true;
    step_validate(d, run, &m);
    metrics_validation(&m);
    return !m.validation_cut;
}
