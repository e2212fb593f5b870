/* The samples of a step (sources.c says where they lie). A rank reads only its own, a whole step of
 * them at once: the number of valid targets of a step must be known before its first backward pass.
 *
 * A thread reads the samples of the next step, checks and hashes them, while this step computes.
 * What it finds wrong is said when that step begins: a run ends with the step that it would have
 * ended with. */
#define _GNU_SOURCE
#include "sources.h"

#include <pthread.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

enum { STACK_BYTES = 1 << 18, WAIT_NANOSECONDS = 100000000 };

/* This rank's samples of one step. */
struct step_samples {
    int64_t begin;  /* sample of the run that the step begins with; -1: nothing was read */
    int32_t *token; /* accumulation x local x (sequence + 1) */
    /* with separate documents, of each token: the number in its sample of its document's first */
    int32_t *first;
    int64_t valid; /* targets that are not masked */
    uint64_t hash;
    /* the same of the samples of rank (rank + shift) % size, as they are in this rank's files */
    uint64_t other_hash;
    int shift;                /* 0: nobody asks */
    int32_t *row, *row_first; /* one sample of that rank */
    bool fine;                /* false: what is wrong is in the `why` of the reader */
};

static struct stream validation;
static struct reader here = {.is_main = true};
static struct step_samples steps[2], *now = &steps[0];
static double waited;   /* seconds, of the last step */
static bool may_differ; /* between ranks: what the files hold */

/* The thread that reads ahead, its step and what it reads with. */
static struct {
    pthread_mutex_t lock;
    pthread_cond_t work, done;
    bool runs, wanted; /* wanted: from when it is given a step until that is read */
    struct step_samples *next;
    struct reader with;
} ahead = {.lock = PTHREAD_MUTEX_INITIALIZER, .next = &steps[1]};

/* ── the samples of a step ───────────────────────────────────────────────────── */

static uint64_t hash_on(uint64_t h, const int32_t *x, int64_t n)
{
    for (int64_t i = 0; i < n; i++) h = (h ^ (uint32_t)x[i]) * 0x9fb21c651e98df25u, h ^= h >> 29;
    return h;
}

static uint64_t sample_hash(const int32_t *token, const int32_t *first, int64_t n, int64_t place)
{
    uint64_t h = hash_on((uint64_t)place, token, n);
    return shuffle_mix(first ? hash_on(h, first, n) : h);
}

/* The tokens of a sample, and where the documents in it begin. False: r->why. */
static bool read_sample(const struct stream *s, int64_t sample, struct reader *r, int32_t *token,
                        int32_t *first)
{
    const int64_t at = sample * program.sequence, n = program.sequence + 1;
    return stream_read(s, at, n, r, token) &&
           (!first || stream_documents(s, at, n, token, r, first));
}

/* Whether token k of a sample is masked as a target: no document says what the next one begins
 * with. */
static bool is_masked(const int32_t *token, const int32_t *first, int64_t k)
{
    return token[k] == program.ignore || (first && first[k] == k);
}

static int64_t valid_targets(const int32_t *token, const int32_t *first)
{
    if (!program.has_ignore) return program.sequence;
    int64_t valid = 0;
    for (int64_t k = 1; k <= program.sequence; k++) valid += !is_masked(token, first, k);
    return valid;
}

/* Sample `number` of this rank's in a step. */
static int32_t *tokens_of(const struct step_samples *s, int64_t number)
{
    return s->token + number * (program.sequence + 1);
}
static int32_t *first_of(const struct step_samples *s, int64_t number)
{
    return s->first ? s->first + number * (program.sequence + 1) : NULL;
}

static int64_t place_of(int rank, int64_t j, int64_t i)
{
    return (j * world.size + rank) * program.local + i;
}

/* The sum of the hashes of a rank's samples; of each, where `hash` is not NULL. False: r->why. */
static bool hash_samples(struct step_samples *s, int rank, struct reader *r, uint64_t *hash,
                         uint64_t *sum)
{
    const int64_t row = program.sequence + 1;
    *sum = 0;
    for (int64_t j = 0; j < program.accumulation; j++)
        for (int64_t i = 0; i < program.local; i++) {
            int64_t sample;
            const struct stream *from = sources_sample(s->begin + place_of(rank, j, i), &sample);
            if (!read_sample(from, sample, r, s->row, s->row_first)) return false;
            const uint64_t h = sample_hash(s->row, s->row_first, row, place_of(rank, j, i));
            if (hash) hash[j * program.local + i] = h;
            *sum += h;
        }
    return true;
}

static void read_step(struct step_samples *s, struct reader *r)
{
    const int64_t row = program.sequence + 1;
    s->valid = 0;
    s->hash = s->other_hash = 0;
    s->shift = may_differ ? agree_shift(s->begin / program.global) : 0;
    s->fine =
        !s->shift || hash_samples(s, (world.rank + s->shift) % world.size, r, NULL, &s->other_hash);
    if (!s->fine) return;
    for (int64_t j = 0; j < program.accumulation; j++)
        for (int64_t i = 0; i < program.local; i++) {
            const int64_t place = place_of(world.rank, j, i);
            int32_t *to = tokens_of(s, j * program.local + i),
                    *first = first_of(s, j * program.local + i);
            int64_t sample;
            const struct stream *from = sources_sample(s->begin + place, &sample);
            s->fine = read_sample(from, sample, r, to, first);
            if (!s->fine) return;
            s->valid += valid_targets(to, first);
            s->hash += sample_hash(to, first, row, place);
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
    const struct reader *by = &ahead.with;
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
    sources_say_epochs(step, sample);
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
int data_shift(void) { return now->shift; }
uint64_t data_other_hash(void) { return now->other_hash; }

void data_find_difference(void)
{
    const int64_t n = program.accumulation * program.local;
    const int other = (world.rank + now->shift) % world.size;
    double *mine = ROOM(double, 2 * n), *all = ROOM(double, 2 * n * world.size);
    uint64_t *hash = ROOM(uint64_t, n), sum;
    wait_for_samples();
    if (!hash_samples(now, world.rank, &here, hash, &sum)) fail_now("%s", here.why);
    for (int64_t k = 0; k < n; k++) {
        mine[2 * k] = (double)(hash[k] >> 32);
        mine[2 * k + 1] = (double)(hash[k] & UINT32_MAX);
    }
    world_exchange(mine, 2 * n, all);
    if (!hash_samples(now, other, &here, hash, &sum)) fail_now("%s", here.why);
    for (int64_t k = 0; k < n; k++) {
        const double *told = all + 2 * (n * other + k);
        if (hash[k] == ((uint64_t)told[0] << 32) + (uint64_t)told[1]) continue;
        int64_t sample, token;
        const struct stream *s = sources_sample(
            now->begin + place_of(other, k / program.local, k % program.local), &sample);
        const char *path = stream_place(s, sample * program.sequence, &token);
        fail_note("data.train: ranks %d and %d have not the same %lld tokens from token %lld of "
                  "%s: their copies of this file differ",
                  world.rank, other, (long long)program.sequence + 1, (long long)token, path);
        return;
    }
}

void data_batch(int64_t micro_batch, int32_t *tokens, int32_t *targets, int32_t *starts)
{
    const int64_t n = program.sequence;
    for (int64_t i = 0; i < program.local; i++) {
        const int64_t number = micro_batch * program.local + i;
        const int32_t *from = tokens_of(now, number), *first = first_of(now, number);
        memcpy(tokens + i * n, from, (size_t)n * sizeof *tokens);
        memcpy(targets + i * n, from + 1, (size_t)n * sizeof *targets);
        for (int64_t k = 0; starts && k < n; k++) {
            starts[i * n + k] = (int32_t)(i * n) + first[k];
            if (first[k + 1] == k + 1) targets[i * n + k] = (int32_t)program.ignore;
        }
    }
}

double data_flops(void)
{
    const int64_t n = program.sequence, samples = program.accumulation * program.local;
    if (!program.separate) return program.flops_per_token * (double)(samples * n);
    double flops = program.other_flops_per_token * (double)(samples * n);
    for (int64_t i = 0; i < samples; i++) {
        const int32_t *first = first_of(now, i);
        for (int64_t from = 0, to; from < n; from = to) {
            for (to = from + 1; to < n && first[to] == from;) to++;
            for (int k = 0; k < program.pairs; k++) {
                const int64_t window = program.pair[k].window,
                              keys = window && window < to - from ? window : to - from;
                flops += program.pair[k].flops * (double)(to - from) * (double)keys;
            }
        }
    }
    return flops;
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

static void take_batch(struct step_samples *s)
{
    const int64_t n = program.accumulation * program.local * (program.sequence + 1);
    if (!s->token) s->token = ROOM(int32_t, n);
    if (!s->first && program.separate) s->first = ROOM(int32_t, n);
}

bool data_open(void)
{
    if (!program.data_trains) return fail_note("the plan has no data.train to train on");
    if (program.has_ignore && program.ignore >= program.vocabulary)
        return fail_note("data.ignore = %lld masks nothing: the vocabulary has %lld ids, 0 to %lld",
                         (long long)program.ignore, (long long)program.vocabulary,
                         (long long)program.vocabulary - 1);
    if (program.separate && program.end_token >= program.vocabulary)
        return fail_note("data.end_token = %lld ends no document: the vocabulary has %lld ids, 0 "
                         "to %lld",
                         (long long)program.end_token, (long long)program.vocabulary,
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
        take_batch(&steps[i]);
        steps[i].row = ROOM(int32_t, program.sequence + 1);
        if (program.separate) steps[i].row_first = ROOM(int32_t, program.sequence + 1);
    }
    return sources_open(&here) && start_reading_ahead();
}

void data_fill(const int32_t *row)
{
    const int64_t n = program.sequence + 1;
    take_batch(now);
    now->begin = -1;
    for (int64_t i = 0; i < program.local; i++) {
        memcpy(tokens_of(now, i), row, (size_t)n * sizeof *row);
        if (program.separate) memset(first_of(now, i), 0, (size_t)n * sizeof *row);
    }
}

void data_agree(void) { may_differ = !sources_agree() && world.size > 1; }

uint64_t data_fingerprint(void) { return sources_fingerprint(&here); }

/* ── validation ──────────────────────────────────────────────────────────────── */

int64_t data_validation_batches(void)
{
    return program.validate_steps ? program.validate_steps : validation.samples / program.global;
}

bool data_validation_open(void)
{
    if (!program.data_validations) return true;
    if (!stream_open(&validation, "data.validation", program.data_validation,
                     program.data_validations, &here))
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
    if (validation.files) (void)stream_agree(&validation, "data.validation");
}

/* In the place of the step that was computed last. */
int64_t data_validation_step(int64_t step, int64_t batch)
{
    int64_t valid = 0;
    for (int64_t j = 0; j < program.accumulation; j++)
        for (int64_t i = 0; i < program.local; i++) {
            const int64_t place = (j * world.size + world.rank) * program.local + i;
            int32_t *to = tokens_of(now, j * program.local + i),
                    *first = first_of(now, j * program.local + i);
            if (!read_sample(&validation, batch * program.global + place, &here, to, first))
                fail_now("rank %d, validation after step %lld: %s", world.rank, (long long)step,
                         here.why);
            valid += valid_targets(to, first);
        }
    return valid;
}
