/* Tokens. The files of `data.train` are one stream: pattern by pattern, the files of a pattern in
 * the order of their names. Sample i is the S + 1 tokens from i * S, so targets are inputs shifted
 * by one. An epoch has floor((tokens - 1) / S) samples; the rest at the end is not used. Sample n
 * of the run is place n % epoch of epoch n / epoch on every mesh, in the order of the stream or
 * shuffled by seed and epoch (shuffle.c). A rank reads only its own samples, with pread, into
 * memory allocated at start, one step at a time: the number of valid targets of a step must be
 * known before its first backward pass. No id reaches a kernel before it is checked against the
 * vocabulary. */
#define _GNU_SOURCE
#define XXH_INLINE_ALL
#include "formats/recognise.h"
#include "trainer.h"

#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

enum { RAW_BYTES = 1 << 18, SCAN_LIMIT = 1 << 28, HASH_BLOCK = 1 << 16, HASH_BLOCKS = 1 << 10 };

/* first: number of its first token in the stream */
struct file {
    const char *path;
    int fd;
    dev_t device;
    ino_t inode;
    int64_t first, tokens;
};

struct stream {
    struct file *file;
    int64_t files, tokens, samples; /* samples of an epoch */
    uint64_t hash;                  /* of the step that was read last */
    int64_t width;                  /* bytes of a token */
    unsigned char *raw;
    /* of a step: accumulation x local x (sequence + 1) */
    int32_t *token;
};
/* What is read: the files to train on, and during a validation the others. */
static struct stream data, validation;

/* Ids in another width, or after a header, are valid ids that train on noise. */
static bool is_as_the_plan_says(const struct file *f, int64_t bytes)
{
    char why[512];
    ssize_t n = pread(f->fd, data.raw, RECOGNISE_BYTES, 0);
    if (n < 0) return fail_note("%s: %s", f->path, strerror(errno));
    switch (recognise(data.raw, (size_t)n, bytes, (int)data.width, program.vocabulary, why,
                      sizeof why)) {
    case RECOGNISED_FINE: break;
    case RECOGNISED_DOUBT: say("warning: %s: %s", f->path, why); break;
    case RECOGNISED_WRONG: return fail_note("%s: %s", f->path, why);
    }
    return true;
}

/* O_NONBLOCK: a pipe is refused, nobody waits for its other end. */
static bool open_one(struct file *f, const char *path)
{
    struct stat s;
    size_t n = strlen(path) + 1;
    *f = (struct file){.path = memcpy(room((int64_t)n), path, n),
                       .fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC),
                       .first = data.tokens};
    if (f->fd < 0 || fstat(f->fd, &s) != 0) return fail_note("%s: %s", path, strerror(errno));
    if (!S_ISREG(s.st_mode)) return fail_note("%s: not a file of tokens", path);
    if (!is_as_the_plan_says(f, s.st_size)) return false;
    if (s.st_size % data.width)
        return fail_note("%s: %lld bytes are no whole number of tokens of %lld bytes", path,
                         (long long)s.st_size, (long long)data.width);
    for (const struct file *g = data.file; g < f; g++)
        if (g->device == s.st_dev && g->inode == s.st_ino)
            return fail_note("%s: the same file as %s, its samples would come twice an epoch", path,
                             g->path);
    f->device = s.st_dev;
    f->inode = s.st_ino;
    f->tokens = s.st_size / data.width;
    data.tokens += f->tokens;
    return true;
}

static bool bad_token(const struct file *f, int64_t at, int64_t id)
{
    return fail_note("%s: token id %lld at byte %lld (token %lld of the file); the vocabulary has "
                     "%lld ids, 0 to %lld",
                     f->path, (long long)id, (long long)(at * data.width), (long long)at,
                     (long long)program.vocabulary, (long long)program.vocabulary - 1);
}

/* Tokens [at, at + n) of one file, checked; to: NULL when only the check is wanted. */
static bool read_file(const struct file *f, int64_t at, int64_t n, int32_t *to)
{
    while (n > 0) {
        int64_t some = n < RAW_BYTES / data.width ? n : RAW_BYTES / data.width,
                bytes = some * data.width;
        for (int64_t got = 0; got < bytes;) {
            ssize_t more =
                pread(f->fd, data.raw + got, (size_t)(bytes - got), (off_t)(at * data.width + got));
            if (more < 0 && errno == EINTR) continue;
            if (more <= 0)
                return fail_note("%s: token %lld: %s", f->path, (long long)at,
                                 more < 0 ? strerror(errno) : "the file has become shorter");
            got += more;
        }
        for (int64_t i = 0; i < some; i++) {
            uint32_t id = 0; /* little-endian, whatever this machine is */
            for (int64_t k = data.width; k-- > 0;) id = id << 8 | data.raw[i * data.width + k];
            if (id >= program.vocabulary) return bad_token(f, at + i, id);
            if (to) to[i] = (int32_t)id;
        }
        to = to ? to + some : NULL;
        at += some;
        n -= some;
        position_moved();
    }
    return true;
}

static bool read_stream(int64_t at, int64_t n, int32_t *to)
{
    int64_t low = 0, high = data.files - 1;
    while (low < high) { /* the last file that begins at or before `at` */
        int64_t middle = (low + high + 1) / 2;
        if (data.file[middle].first <= at)
            low = middle;
        else
            high = middle - 1;
    }
    for (int64_t i = low; n > 0; i++) {
        const struct file *f = &data.file[i];
        int64_t from = at - f->first, some = f->tokens - from < n ? f->tokens - from : n;
        if (some > 0 && !read_file(f, from, some, to)) return false;
        to = to ? to + some : NULL;
        at += some;
        n -= some;
    }
    return true;
}

/* Ids that no vocabulary of this size has are found before the first step as far as that costs
 * little: each rank looks at its part of the stream. What lies beyond is checked when it is
 * read. */
static bool scan(void)
{
    if (data.width < 4 && program.vocabulary >= (int64_t)1 << 8 * data.width) return true;
    int64_t share = (data.tokens + world.size - 1) / world.size, from = share * world.rank,
            n = data.tokens - from;
    n = n < share ? n : share;
    n = n < SCAN_LIMIT / data.width ? n : SCAN_LIMIT / data.width;
    return n <= 0 || read_stream(from, n, NULL);
}

/* What a pattern stands for: nothing found is a mistake. A name is a name, even with brackets in
 * it: found stays empty. */
static bool search(const char *name, glob_t *found)
{
    *found = (glob_t){0};
    if (access(name, F_OK) == 0) return true;
    if (strpbrk(name, "*?[") == NULL) return fail_note("%s: %s", name, strerror(ENOENT));
    int rc = glob(name, 0, NULL, found);
    return rc == 0 ||
           fail_note("%s: %s", name, rc == GLOB_NOMATCH ? "no such file" : "cannot be searched");
}

static bool open_all(const char *const *name, int n)
{
    glob_t *found = ROOM(glob_t, n);
    for (int i = 0; i < n; i++) {
        if (!search(name[i], &found[i])) return false;
        data.files += found[i].gl_pathc ? (int64_t)found[i].gl_pathc : 1;
    }
    data.file = ROOM(struct file, data.files);
    struct file *next = data.file;
    for (int i = 0; i < n; i++) {
        if (found[i].gl_pathc == 0 && !open_one(next++, name[i])) return false;
        for (size_t k = 0; k < found[i].gl_pathc; k++)
            if (!open_one(next++, found[i].gl_pathv[k])) return false;
        globfree(&found[i]);
    }
    return true;
}

static int64_t token_bytes(enum token_format format)
{
    switch (format) {
    case FORMAT_BYTES: return 1;
    case FORMAT_UINT16: return 2;
    case FORMAT_UINT32: return 4;
    }
    return 0;
}

bool data_open(void)
{
    data.width = token_bytes(program.data_format);
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
    data.raw = room(RAW_BYTES);
    data.token = ROOM(int32_t, program.accumulation * program.local * (program.sequence + 1));
    if (!open_all(program.data_train, program.data_trains)) return false;
    data.samples = (data.tokens - 1) / program.sequence;
    if (data.tokens < program.sequence + 1)
        return fail_note("%s: %lld tokens, one sample of sequence %lld needs %lld",
                         program.data_train[0], (long long)data.tokens, (long long)program.sequence,
                         (long long)program.sequence + 1);
    return scan();
}

int64_t data_tokens(void) { return data.tokens; }

/* ── what the files hold, in one number ──────────────────────────────────────── */

/* Blocks [from, from + n) of a file. */
static void hash_stretch(XXH3_state_t *h, const struct file *f, int64_t from, int64_t n)
{
    for (int64_t done = 0; done < n;) {
        const int64_t want = n - done < RAW_BYTES ? n - done : RAW_BYTES;
        const ssize_t got = pread(f->fd, data.raw, (size_t)want, (off_t)(from + done));
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0) return; /* shorter than it was: another hash, and an error when it is read */
        XXH3_64bits_update(h, data.raw, (size_t)got);
        done += got;
        position_moved();
    }
}

uint64_t data_fingerprint(void)
{
    static bool known;
    static uint64_t fingerprint;
    static XXH3_state_t state;
    if (known || !data.files) return fingerprint;
    const double total = (double)(data.tokens * data.width);
    XXH3_64bits_reset(&state);
    for (int64_t i = 0; i < data.files; i++) {
        const struct file *f = &data.file[i];
        const int64_t bytes = f->tokens * data.width;
        int64_t blocks = (int64_t)((double)HASH_BLOCKS * (double)bytes / total);
        blocks = blocks < 2 ? 2 : blocks;
        XXH3_64bits_update(&state, &bytes, sizeof bytes);
        if (bytes <= blocks * HASH_BLOCK)
            hash_stretch(&state, f, 0, bytes);
        else
            for (int64_t k = 0; k < blocks; k++)
                hash_stretch(
                    &state, f,
                    (int64_t)((double)(bytes - HASH_BLOCK) * (double)k / (double)(blocks - 1)),
                    HASH_BLOCK);
    }
    known = true;
    return fingerprint = XXH3_64bits_digest(&state);
}

static void agree_stream(const char *name)
{
    struct agreed_file *file = ROOM(struct agreed_file, data.files);
    for (int64_t i = 0; i < data.files; i++)
        file[i] = (struct agreed_file){data.file[i].path, data.file[i].fd,
                                       data.file[i].tokens * data.width};
    agree_files(name, file, data.files);
}

void data_agree(void) { agree_stream("data.train"); }

/* ── validation ──────────────────────────────────────────────────────────────── */

static void exchange_streams(void)
{
    const struct stream other = validation;
    validation = data;
    data = other;
}

int64_t data_validation_batches(void)
{
    return program.validate_steps ? program.validate_steps : validation.samples / program.global;
}

bool data_validation_open(void)
{
    if (!program.data_validations) return true;
    validation =
        (struct stream){.width = data.width, .raw = data.raw, .token = data.token, .tokens = 0};
    exchange_streams();
    bool fine = open_all(program.data_validation, program.data_validations);
    if (fine) {
        data.samples = data.tokens > 0 ? (data.tokens - 1) / program.sequence : 0;
        const int64_t steps = program.validate_steps ? program.validate_steps : 1;
        if (data.samples / program.global < steps)
            fine = fail_note("data.validation: %s and the others hold %lld samples of sequence "
                             "%lld, a validation of %lld step%s needs %lld",
                             program.data_validation[0], (long long)data.samples,
                             (long long)program.sequence, (long long)steps, steps == 1 ? "" : "s",
                             (long long)(steps * program.global));
        else
            fine = scan();
    }
    exchange_streams();
    return fine;
}

void data_validation_agree(void)
{
    exchange_streams();
    if (data.files) agree_stream("data.validation");
    exchange_streams();
}

int64_t data_validation_step(int64_t step, int64_t batch)
{
    const int64_t row = program.sequence + 1;
    int64_t valid = 0;
    exchange_streams();
    for (int64_t j = 0; j < program.accumulation; j++)
        for (int64_t i = 0; i < program.local; i++) {
            const int64_t place = (j * world.size + world.rank) * program.local + i;
            int32_t *to = data.token + (j * program.local + i) * row;
            if (!read_stream((batch * program.global + place) * program.sequence, row, to))
                fail_now("rank %d, validation after step %lld: %s", world.rank, (long long)step,
                         fail_noted());
            for (int64_t k = 1; k < row; k++)
                valid += !program.has_ignore || to[k] != program.ignore;
        }
    exchange_streams();
    return valid;
}

void data_describe(int64_t first, int64_t steps)
{
    static const char *const formats[] = {
        [FORMAT_BYTES] = "bytes", [FORMAT_UINT16] = "uint16", [FORMAT_UINT32] = "uint32"};
    char tokens[32], samples[32], more[48] = "", order[64] = "";
    const bool shuffled = program.data_order == ORDER_SHUFFLED;
    if (!data.files) return;
    if (program.data_trains > 1)
        snprintf(more, sizeof more, " and %d more", program.data_trains - 1);
    if (shuffled)
        snprintf(order, sizeof order, ", shuffled with seed %lld", (long long)program.data_seed);
    say("data: %s%s, %s, %s tokens in %lld file%s, %s samples an epoch%s", program.data_train[0],
        more, formats[program.data_format], count_text(data.tokens, tokens), (long long)data.files,
        data.files == 1 ? "" : "s", count_text(data.samples, samples), order);
    if (first + steps * program.global > data.samples)
        say("data: shorter than the run: after sample %s the stream begins again%s", samples,
            shuffled ? ", in another order" : " from its first token");
}

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

/* This rank's samples of a step, and their hash; its targets that are not masked, -1: noted. */
static int64_t read_step(int64_t sample)
{
    const int64_t row = program.sequence + 1;
    int64_t valid = 0;
    data.hash = 0;
    for (int64_t j = 0; j < program.accumulation; j++)
        for (int64_t i = 0; i < program.local; i++) {
            int64_t place = (j * world.size + world.rank) * program.local + i;
            int32_t *to = data.token + (j * program.local + i) * row;
            if (!read_stream(sample_at(sample + place) * program.sequence, row, to)) return -1;
            for (int64_t k = 1; k < row; k++)
                valid += !program.has_ignore || to[k] != program.ignore;
            data.hash += sample_hash(to, row, place);
        }
    return valid;
}

int64_t data_step(int64_t step, int64_t sample)
{
    const int64_t valid = read_step(sample);
    if (valid < 0) fail_now("rank %d, step %lld: %s", world.rank, (long long)step, fail_noted());
    int64_t before = sample > 0 ? (sample - 1) / data.samples : 0,
            now = (sample + program.global - 1) / data.samples;
    if (now > before) say("data: epoch %lld begins in step %lld", (long long)now, (long long)step);
    return valid;
}

bool data_read_again(int64_t sample, uint64_t *hash)
{
    const bool fine = read_step(sample) >= 0;
    *hash = data.hash;
    return fine;
}

uint64_t data_hash(void) { return data.hash; }

void data_batch(int64_t micro_batch, int32_t *tokens, int32_t *targets)
{
    const int64_t row = program.sequence + 1;
    for (int64_t i = 0; i < program.local; i++) {
        const int32_t *from = data.token + (micro_batch * program.local + i) * row;
        memcpy(tokens + i * program.sequence, from, (size_t)program.sequence * sizeof *tokens);
        memcpy(targets + i * program.sequence, from + 1,
               (size_t)program.sequence * sizeof *targets);
    }
}
