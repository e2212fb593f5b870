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
#include "formats/tokens.h"
#include "trainer.h"

#include <errno.h>
#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>
#include <xxhash.h>

enum {
    SCAN_LIMIT = 1 << 28,
    PIECE = 1 << 15, /* tokens that are read before the watchdog is told that this rank moves */
    HASH_BLOCK = 1 << 16,
    HASH_BLOCKS = 1 << 10
};

/* first: number of its first token in the stream */
struct file {
    struct tokens_file f;
    int64_t first;
};

struct stream {
    struct file *file;
    int64_t files, tokens, samples; /* samples of an epoch */
    int64_t bytes;                  /* of all files */
    uint64_t hash;                  /* of the step that was read last */
    bool is_text;                   /* all files hold bytes of text */
    unsigned char *raw;             /* TOKENS_BUFFER */
    /* of a step: accumulation x local x (sequence + 1) */
    int32_t *token;
};
/* What is read: the files to train on, and during a validation the others. */
static struct stream data, validation;

static enum tokens_named named(enum token_format format)
{
    switch (format) {
    case FORMAT_BYTES: return TOKENS_BYTES;
    case FORMAT_UINT16: return TOKENS_UINT16;
    case FORMAT_UINT32: return TOKENS_UINT32;
    case FORMAT_MEGATRON: return TOKENS_MEGATRON;
    case FORMAT_NUMPY: return TOKENS_NUMPY;
    case FORMAT_LLMC: return TOKENS_LLMC;
    case FORMAT_JSON_LINES: return TOKENS_JSON_LINES;
    case FORMAT_RECOGNISED: break;
    }
    return TOKENS_RECOGNISED;
}

/* Raw ids have no mark that says their width: one file that looks like another width than the
 * others is hardly meant. */
static bool same_width(const struct file *file)
{
    const struct tokens_file *f = &file->f;
    char mine[64], others[64];
    for (const struct file *g = data.file; g < file; g++)
        if (program.data_format == FORMAT_RECOGNISED && f->layout == LAYOUT_RAW &&
            g->f.layout == LAYOUT_RAW && g->f.id_bytes != f->id_bytes)
            return fail_note("%s: looks like %s, and %s like %s; name the format of both: "
                             "data.format = uint16 or uint32",
                             f->path, tokens_text(f, mine), g->f.path, tokens_text(&g->f, others));
    return true;
}

static bool open_one(struct file *file, const char *path)
{
    const struct tokens_wish wish = {.named = named(program.data_format),
                                     .field = program.data_field,
                                     .vocabulary = program.vocabulary};
    char why[TOKENS_WHY], warning[TOKENS_WHY];
    struct tokens_file *f = &file->f;
    if (!tokens_open(f, path, &wish, warning, why)) return fail_note("%s", why);
    if (warning[0]) say("warning: %s: %s", f->path, warning);
    for (const struct file *g = data.file; g < file; g++)
        if (g->f.device == f->device && g->f.inode == f->inode)
            return fail_note("%s: the same file as %s, its samples would come twice an epoch", path,
                             g->f.path);
    file->first = data.tokens;
    data.tokens += f->tokens;
    data.bytes += f->file_bytes + f->index_bytes;
    data.is_text = (file == data.file || data.is_text) && f->is_text;
    return same_width(file) &&
           (tokens_check_index(f, world.rank, world.size, data.raw, why) || fail_note("%s", why));
}

/* Tokens [at, at + n) of one file, checked; to: NULL when only the check is wanted. */
static bool read_file(const struct file *f, int64_t at, int64_t n, int32_t *to)
{
    char why[TOKENS_WHY];
    while (n > 0) {
        const int64_t some = n < PIECE ? n : PIECE;
        if (!tokens_read(&f->f, at, some, program.vocabulary, data.raw, to, why))
            return fail_note("%s", why);
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
        int64_t from = at - f->first, some = f->f.tokens - from < n ? f->f.tokens - from : n;
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
    int64_t widest = 1;
    for (int64_t i = 0; i < data.files; i++)
        if (data.file[i].f.id_bytes > widest) widest = data.file[i].f.id_bytes;
    if (widest < 4 && program.vocabulary >= (int64_t)1 << 8 * widest) return true;
    int64_t share = (data.tokens + world.size - 1) / world.size, from = share * world.rank,
            n = data.tokens - from;
    n = n < share ? n : share;
    n = n < SCAN_LIMIT / widest ? n : SCAN_LIMIT / widest;
    return n <= 0 || read_stream(from, n, NULL);
}

/* What a pattern stands for: nothing found is a mistake. A name is a name, even with brackets in
 * it: found stays empty. */
static bool search(const char *name, glob_t *found)
{
    char path[4096];
    *found = (glob_t){0};
    if (tokens_path(name, path, sizeof path)) return true;
    if (strpbrk(name, "*?[") == NULL) return fail_note("%s: %s", name, strerror(ENOENT));
    int rc = glob(name, 0, NULL, found);
    return rc == 0 ||
           fail_note("%s: %s", name, rc == GLOB_NOMATCH ? "no such file" : "cannot be searched");
}

/* An index beside its .bin, which the pattern finds too: prefix* finds both. */
static bool is_index(const char *path, const glob_t *found)
{
    char bin[4096];
    const char *other = tokens_path(path, bin, sizeof bin);
    for (size_t k = 0; other && other != path && k < found->gl_pathc; k++)
        if (!strcmp(found->gl_pathv[k], other)) return true;
    return false;
}

static bool open_all(const char *const *name, int n)
{
    glob_t *found = ROOM(glob_t, n);
    int64_t most = 0;
    for (int i = 0; i < n; i++) {
        if (!search(name[i], &found[i])) return false;
        most += found[i].gl_pathc ? (int64_t)found[i].gl_pathc : 1;
    }
    data.file = ROOM(struct file, most);
    for (int i = 0; i < n; i++) {
        if (found[i].gl_pathc == 0 && !open_one(&data.file[data.files++], name[i])) return false;
        for (size_t k = 0; k < found[i].gl_pathc; k++)
            if (!is_index(found[i].gl_pathv[k], &found[i]) &&
                !open_one(&data.file[data.files++], found[i].gl_pathv[k]))
                return false;
        globfree(&found[i]);
    }
    return true;
}

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
    data.raw = room(TOKENS_BUFFER);
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
bool data_is_text(void) { return data.is_text; }

/* ── what the files hold, in one number ──────────────────────────────────────── */

/* Bytes [from, from + n) of a file. */
static void hash_stretch(XXH3_state_t *h, int fd, int64_t from, int64_t n)
{
    for (int64_t done = 0; done < n;) {
        const int64_t want = n - done < TOKENS_BUFFER ? n - done : TOKENS_BUFFER;
        const ssize_t got = pread(fd, data.raw, (size_t)want, (off_t)(from + done));
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0) return; /* shorter than it was: another hash, and an error when it is read */
        XXH3_64bits_update(h, data.raw, (size_t)got);
        done += got;
        position_moved();
    }
}

/* The size of a file, and some of its blocks. */
static void hash_blocks(XXH3_state_t *h, int fd, int64_t bytes)
{
    int64_t blocks = (int64_t)((double)HASH_BLOCKS * (double)bytes / (double)data.bytes);
    blocks = blocks < 2 ? 2 : blocks;
    XXH3_64bits_update(h, &bytes, sizeof bytes);
    if (bytes <= blocks * HASH_BLOCK)
        hash_stretch(h, fd, 0, bytes);
    else
        for (int64_t k = 0; k < blocks; k++)
            hash_stretch(h, fd,
                         (int64_t)((double)(bytes - HASH_BLOCK) * (double)k / (double)(blocks - 1)),
                         HASH_BLOCK);
}

uint64_t data_fingerprint(void)
{
    static bool known;
    static uint64_t fingerprint;
    static XXH3_state_t state;
    if (known || !data.files) return fingerprint;
    XXH3_64bits_reset(&state);
    for (int64_t i = 0; i < data.files; i++) {
        const struct tokens_file *f = &data.file[i].f;
        hash_blocks(&state, f->fd, f->file_bytes);
        if (f->index_fd >= 0) hash_blocks(&state, f->index_fd, f->index_bytes);
    }
    known = true;
    return fingerprint = XXH3_64bits_digest(&state);
}

static void agree_stream(const char *name)
{
    struct agreed_file *file = ROOM(struct agreed_file, 2 * data.files);
    int64_t n = 0;
    for (int64_t i = 0; i < data.files; i++) {
        const struct tokens_file *f = &data.file[i].f;
        file[n++] = (struct agreed_file){f->path, f->fd, f->file_bytes};
        if (f->index_fd >= 0)
            file[n++] = (struct agreed_file){f->index_path, f->index_fd, f->index_bytes};
    }
    agree_files(name, file, n);
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
    validation = (struct stream){.raw = data.raw, .token = data.token, .tokens = 0};
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
    char tokens[32], samples[32], more[48] = "", order[64] = "", text[64], other[64];
    const bool shuffled = program.data_order == ORDER_SHUFFLED;
    if (!data.files) return;
    if (program.data_trains > 1)
        snprintf(more, sizeof more, " and %d more", program.data_trains - 1);
    if (shuffled)
        snprintf(order, sizeof order, ", shuffled with seed %lld", (long long)program.data_seed);
    const char *format = tokens_text(&data.file[0].f, text);
    for (int64_t i = 1; i < data.files; i++)
        if (strcmp(format, tokens_text(&data.file[i].f, other))) format = "several formats";
    say("data: %s%s, %s, %s tokens in %lld file%s, %s samples an epoch%s", program.data_train[0],
        more, format, count_text(data.tokens, tokens), (long long)data.files,
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
