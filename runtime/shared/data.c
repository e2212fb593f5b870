/* Which samples a step has. Sample n of the run is the same on every mesh: place n % epoch of epoch
 * n / epoch of the stream, in its order or shuffled by seed and epoch (shuffle.c). A rank reads
 * only its own samples, a whole step of them at once: the number of valid targets of a step must be
 * known before its first backward pass.
 *
 * A thread reads the samples of the next step, checks and hashes them, while this step computes.
 * What it finds wrong is said when that step begins: a run ends with the step that it would have
 * ended with. */
#define _GNU_SOURCE
#include "stream.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

enum { STACK_BYTES = 1 << 18, WAIT_NANOSECONDS = 100000000 };

/* This rank's samples of one step. */
struct step_samples {
    int64_t begin;  /* sample of the run that the step begins with; -1: nothing was read */
    int32_t *token; /* accumulation x local x (sequence + 1) */
    int64_t valid;  /* targets that are not masked */
    uint64_t hash;
    bool fine; /* false: what is wrong is in the `why` of who read */
};

/* What is read: the files to train on, and during a validation the others. */
static struct stream data, validation;
static struct reading here = {.is_main = true};
static struct step_samples steps[2], *now = &steps[0];
static double waited; /* seconds, of the last step */

/* The thread that reads ahead, its step and what it reads with. */
static struct {
    pthread_mutex_t lock;
    pthread_cond_t work, done;
    bool runs, wanted; /* wanted: from when it is given a step until that is read */
    struct step_samples *next;
    struct reading with;
} ahead = {.lock = PTHREAD_MUTEX_INITIALIZER, .next = &steps[1]};

/* ── the samples of a step ───────────────────────────────────────────────────── */

/* Which of the stream's samples is the n-th of the run. */
static int64_t sample_at(int64_t n)
{
    const int64_t epoch = n / data.samples, place = n % data.samples;
    return program.data_order == ORDER_SEQUENTIAL
               ? place
               : shuffle_place(program.data_seed, epoch, data.samples, place);
}

static uint64_t sample_hash(const int32_t *token, int64_t n, int64_t place)
{
    uint64_t h = (uint64_t)place;
    for (int64_t i = 0; i < n; i++)
        h = (h ^ (uint32_t)token[i]) * 0x9fb21c651e98df25u, h ^= h >> 29;
    return shuffle_mix(h);
}

static int64_t valid_targets(const int32_t *token)
{
    if (!program.has_ignore) return program.sequence;
    int64_t valid = 0;
    for (int64_t k = 1; k <= program.sequence; k++) valid += token[k] != program.ignore;
    return valid;
}

static void read_step(struct step_samples *s, struct reading *r)
{
    const int64_t row = program.sequence + 1;
    s->valid = 0;
    s->hash = 0;
    s->fine = true;
    for (int64_t j = 0; j < program.accumulation; j++)
        for (int64_t i = 0; i < program.local; i++) {
            const int64_t place = (j * world.size + world.rank) * program.local + i;
            int32_t *to = s->token + (j * program.local + i) * row;
            s->fine = s->fine && stream_read(&data, sample_at(s->begin + place) * program.sequence,
                                             row, r, to);
            if (!s->fine) return;
            s->valid += valid_targets(to);
            s->hash += sample_hash(to, row, place);
        }
}

/* ── reading ahead ───────────────────────────────────────────────────────────── */

static void *read_ahead(void *unused)
{
    pthread_mutex_lock(&ahead.lock);
    for (;;) {
        while (!ahead.wanted) pthread_cond_wait(&ahead.work, &ahead.lock);
        pthread_mutex_unlock(&ahead.lock);
        read_step(ahead.next, &ahead.with);
        pthread_mutex_lock(&ahead.lock);
        ahead.wanted = false;
        pthread_cond_signal(&ahead.done);
    }
    return unused;
}

static bool start_reading_ahead(void)
{
    pthread_t thread;
    pthread_attr_t attributes;
    pthread_condattr_t monotonic;
    ahead.runs = !pthread_condattr_init(&monotonic) &&
                 !pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC) &&
                 !pthread_cond_init(&ahead.work, NULL) &&
                 !pthread_cond_init(&ahead.done, &monotonic) && !pthread_attr_init(&attributes) &&
                 !pthread_attr_setstacksize(&attributes, STACK_BYTES) &&
                 !pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED) &&
                 !pthread_create(&thread, &attributes, read_ahead, NULL);
    return ahead.runs || fail_note("no thread to read data ahead");
}

/* Until the thread has read what it was given. As long as it reads, this rank moves. */
static void wait_for_samples(void)
{
    int64_t seen = -1;
    pthread_mutex_lock(&ahead.lock);
    while (ahead.wanted) {
        struct timespec until;
        const int64_t pieces = atomic_load(&ahead.with.pieces);
        if (pieces != seen) position_moved();
        seen = pieces;
        clock_gettime(CLOCK_MONOTONIC, &until);
        until.tv_nsec += WAIT_NANOSECONDS;
        until.tv_sec += until.tv_nsec / 1000000000;
        until.tv_nsec %= 1000000000;
        pthread_cond_timedwait(&ahead.done, &ahead.lock, &until);
    }
    pthread_mutex_unlock(&ahead.lock);
}

static void want_samples(int64_t begin)
{
    pthread_mutex_lock(&ahead.lock);
    ahead.next->begin = begin;
    ahead.wanted = true;
    pthread_cond_signal(&ahead.work);
    pthread_mutex_unlock(&ahead.lock);
}

int64_t data_step(int64_t step, int64_t sample)
{
    const double begun = clock_seconds();
    const struct reading *by = &ahead.with;
    wait_for_samples();
    if (ahead.next->begin == sample) {
        struct step_samples *read = ahead.next;
        ahead.next = now;
        now = read;
    } else { /* the first step of a run */
        now->begin = sample;
        read_step(now, &here);
        by = &here;
    }
    waited = clock_seconds() - begun;
    if (!now->fine) fail_now("rank %d, step %lld: %s", world.rank, (long long)step, by->why);
    want_samples(data_next(sample + program.global));
    const int64_t before = sample > 0 ? (sample - 1) / data.samples : 0,
                  epoch = (sample + program.global - 1) / data.samples;
    if (epoch > before)
        say("data: epoch %lld begins in step %lld", (long long)epoch, (long long)step);
    return now->valid;
}

bool data_read_again(int64_t sample, uint64_t *hash)
{
    now->begin = sample;
    read_step(now, &here);
    *hash = now->hash;
    return now->fine || fail_note("%s", here.why);
}

double data_wait_seconds(void) { return waited; }
uint64_t data_hash(void) { return now->hash; }

void data_batch(int64_t micro_batch, int32_t *tokens, int32_t *targets)
{
    const int64_t row = program.sequence + 1;
    for (int64_t i = 0; i < program.local; i++) {
        const int32_t *from = now->token + (micro_batch * program.local + i) * row;
        memcpy(tokens + i * program.sequence, from, (size_t)program.sequence * sizeof *tokens);
        memcpy(targets + i * program.sequence, from + 1,
               (size_t)program.sequence * sizeof *targets);
    }
}

/* Batches are counted from the beginning of the data, those that are skipped too. */
int64_t data_next(int64_t sample)
{
    for (bool moved = true; moved;) {
        moved = false;
        const int64_t batch = sample / program.global;
        for (int i = 0; i < program.skip_batches; i++)
            if (batch >= program.skip_batch[i][0] && batch < program.skip_batch[i][1]) {
                sample += (program.skip_batch[i][1] - batch) * program.global;
                moved = true;
                break;
            }
    }
    return sample;
}

/* ── coming up ───────────────────────────────────────────────────────────────── */

bool data_open(void)
{
    if (!program.data_trains) return fail_note("the plan has no data.train to train on");
    if (program.has_ignore && program.ignore >= program.vocabulary)
        return fail_note("data.ignore = %lld masks nothing: the vocabulary has %lld ids, 0 to %lld",
                         (long long)program.ignore, (long long)program.vocabulary,
                         (long long)program.vocabulary - 1);
    struct rlimit files;
    if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
        files.rlim_cur = files.rlim_max;
        setrlimit(RLIMIT_NOFILE, &files); /* when refused, a file too many says so below */
    }
    here.raw = room(TOKENS_BUFFER);
    ahead.with.raw = room(TOKENS_BUFFER);
    for (int i = 0; i < 2; i++) {
        steps[i].begin = -1;
        steps[i].token =
            ROOM(int32_t, program.accumulation * program.local * (program.sequence + 1));
    }
    if (!stream_open(&data, program.data_train, program.data_trains, &here)) return false;
    if (data.samples < 1)
        return fail_note("%s: %lld tokens, one sample of sequence %lld needs %lld",
                         program.data_train[0], (long long)data.tokens, (long long)program.sequence,
                         (long long)program.sequence + 1);
    return stream_scan(&data, &here) && start_reading_ahead();
}

int64_t data_tokens(void) { return data.tokens; }
bool data_is_text(void) { return data.is_text; }

uint64_t data_fingerprint(void)
{
    static bool known;
    static uint64_t fingerprint;
    if (known || !data.files) return fingerprint;
    known = true;
    return fingerprint = stream_fingerprint(&data, 1, &here);
}

void data_agree(void) { stream_agree(&data, "data.train"); }

void data_describe(int64_t first, int64_t count)
{
    char tokens[32], samples[32], more[48] = "", order[64] = "", text[64];
    const bool shuffled = program.data_order == ORDER_SHUFFLED;
    if (!data.files) return;
    if (program.data_trains > 1)
        snprintf(more, sizeof more, " and %d more", program.data_trains - 1);
    if (shuffled)
        snprintf(order, sizeof order, ", shuffled with seed %lld", (long long)program.data_seed);
    say("data: %s%s, %s, %s tokens in %lld file%s, %s samples an epoch%s", program.data_train[0],
        more, stream_format(&data, text), count_text(data.tokens, tokens), (long long)data.files,
        data.files == 1 ? "" : "s", count_text(data.samples, samples), order);
    if (first + count * program.global > data.samples)
        say("data: shorter than the run: after sample %s the stream begins again%s", samples,
            shuffled ? ", in another order" : " from its first token");
}

/* ── validation ──────────────────────────────────────────────────────────────── */

int64_t data_validation_batches(void)
{
    return program.validate_steps ? program.validate_steps : validation.samples / program.global;
}

bool data_validation_open(void)
{
    if (!program.data_validations) return true;
    if (!stream_open(&validation, program.data_validation, program.data_validations, &here))
        return false;
    const int64_t needed = program.validate_steps ? program.validate_steps : 1;
    if (validation.samples / program.global < needed)
        return fail_note("data.validation: %s and the others hold %lld samples of sequence %lld, a "
                         "validation of %lld step%s needs %lld",
                         program.data_validation[0], (long long)validation.samples,
                         (long long)program.sequence, (long long)needed, needed == 1 ? "" : "s",
                         (long long)(needed * program.global));
    return stream_scan(&validation, &here);
}

void data_validation_agree(void)
{
    if (validation.files) stream_agree(&validation, "data.validation");
}

/* In the place of the step that was computed last. */
int64_t data_validation_step(int64_t step, int64_t batch)
{
    const int64_t row = program.sequence + 1;
    int64_t valid = 0;
    for (int64_t j = 0; j < program.accumulation; j++)
        for (int64_t i = 0; i < program.local; i++) {
            const int64_t place = (j * world.size + world.rank) * program.local + i;
            int32_t *to = now->token + (j * program.local + i) * row;
            if (!stream_read(&validation, (batch * program.global + place) * program.sequence, row,
                             &here, to))
                fail_now("rank %d, validation after step %lld: %s", world.rank, (long long)step,
                         here.why);
            valid += valid_targets(to);
        }
    return valid;
}
