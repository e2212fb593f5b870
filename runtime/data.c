/* Tokens. The files of `data.train` are one stream in the order of their names; sample i is the S + 1 tokens from i * S,
 * so targets are inputs shifted by one. An epoch has floor((tokens - 1) / S) samples; sample number n of the run is sample
 * n modulo that of epoch n / that, whatever the mesh, and what is left over at the end is not used. A rank reads only
 * its own samples, with pread, into memory taken at start, one step at a time: the number of valid targets of a step must
 * be known before its first backward. No id reaches a kernel before it was held against the vocabulary. */
#define _GNU_SOURCE
#include "trainer.h"

#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

enum { RAW_BYTES = 1 << 18, SCAN_LIMIT = 1 << 28 };

struct file { const char *path; int fd; int64_t first, tokens; };  /* first: number of its first token in the stream */

static struct {
    struct file *file; int64_t files, tokens, samples;   /* samples of an epoch */
    int64_t width;                                       /* bytes of a token */
    unsigned char *raw;
    int32_t *token;                                      /* of a step: accumulation x local x (sequence + 1) */
} data;

static bool open_one(struct file *f, const char *path)
{
    struct stat s;
    size_t n = strlen(path) + 1;
    *f = (struct file){.path = memcpy(room((int64_t)n), path, n), .fd = open(path, O_RDONLY | O_CLOEXEC), .first = data.tokens};
    if (f->fd < 0 || fstat(f->fd, &s) != 0)
        return fail_note("%s: %s", path, strerror(errno));
    if (!S_ISREG(s.st_mode))
        return fail_note("%s: not a file of tokens", path);
    if (s.st_size % data.width)
        return fail_note("%s: %lld bytes are no whole number of tokens of %lld bytes", path, (long long)s.st_size, (long long)data.width);
    f->tokens = s.st_size / data.width;
    data.tokens += f->tokens;
    return true;
}

static bool bad_token(const struct file *f, int64_t at, int64_t id)
{
    return fail_note("%s: token id %lld at byte %lld (token %lld of the file); the vocabulary has %lld ids, 0 to %lld", f->path, (long long)id,
                     (long long)(at * data.width), (long long)at, (long long)program.vocabulary, (long long)program.vocabulary - 1);
}

/* Tokens [at, at + n) of one file, checked; to: NULL when only the check is wanted. */
static bool read_file(const struct file *f, int64_t at, int64_t n, int32_t *to)
{
    while (n > 0) {
        int64_t some = n < RAW_BYTES / data.width ? n : RAW_BYTES / data.width, bytes = some * data.width;
        for (int64_t got = 0; got < bytes;) {
            ssize_t more = pread(f->fd, data.raw + got, (size_t)(bytes - got), (off_t)(at * data.width + got));
            if (more < 0 && errno == EINTR)
                continue;
            if (more <= 0)
                return fail_note("%s: token %lld: %s", f->path, (long long)at, more < 0 ? strerror(errno) : "the file has become shorter");
            got += more;
        }
        for (int64_t i = 0; i < some; i++) {
            const unsigned char *b = data.raw + i * data.width;
            int64_t id = data.width == 1 ? b[0] : data.width == 2 ? b[0] | b[1] << 8 : (int64_t)(b[0] | b[1] << 8 | b[2] << 16 | (uint32_t)b[3] << 24);
            if (id >= program.vocabulary)
                return bad_token(f, at + i, id);
            if (to)
                to[i] = (int32_t)id;
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
    while (low < high) {   /* the last file that begins at or before `at` */
        int64_t middle = (low + high + 1) / 2;
        if (data.file[middle].first <= at)
            low = middle;
        else
            high = middle - 1;
    }
    for (int64_t i = low; n > 0; i++) {
        const struct file *f = &data.file[i];
        int64_t from = at - f->first, some = f->tokens - from < n ? f->tokens - from : n;
        if (some > 0 && !read_file(f, from, some, to))
            return false;
        to = to ? to + some : NULL;
        at += some;
        n -= some;
    }
    return true;
}

/* Ids that no vocabulary of this size has are found before the first step as far as that costs little: each rank looks
 * at its part of the stream. What lies beyond is checked when it is read. */
static bool scan(void)
{
    if (data.width < 4 && program.vocabulary >= (int64_t)1 << 8 * data.width)
        return true;
    int64_t share = (data.tokens + world.size - 1) / world.size, from = share * world.rank, n = data.tokens - from;
    n = n < share ? n : share;
    n = n < SCAN_LIMIT / data.width ? n : SCAN_LIMIT / data.width;
    return n <= 0 || read_stream(from, n, NULL);
}

bool data_open(void)
{
    glob_t found = {0};
    data.width = (int64_t)1 << program.data_format;
    if (!program.data_train)
        return fail_note("the plan has no data.train to train on");
    if (program.data_order != 0)
        return fail_note("data.order = shuffled is not available in this version");
    struct rlimit files;
    if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
        files.rlim_cur = files.rlim_max;
        setrlimit(RLIMIT_NOFILE, &files);   /* when refused, a file too many says so below */
    }
    bool plain = access(program.data_train, F_OK) == 0;   /* a name is a name, even with brackets in it */
    int rc = plain ? 0 : glob(program.data_train, 0, NULL, &found);
    if (!plain && strpbrk(program.data_train, "*?[") == NULL)
        return fail_note("%s: %s", program.data_train, strerror(ENOENT));
    if (rc != 0)
        return fail_note("%s: %s", program.data_train, rc == GLOB_NOMATCH ? "no such file" : "cannot be searched");
    data.files = plain ? 1 : (int64_t)found.gl_pathc;
    data.file = ROOM(struct file, data.files);
    data.raw = room(RAW_BYTES);
    data.token = ROOM(int32_t, program.accumulation * program.local * (program.sequence + 1));
    for (int64_t i = 0; i < data.files; i++)
        if (!open_one(&data.file[i], plain ? program.data_train : found.gl_pathv[i]))
            return false;
    if (!plain)
        globfree(&found);
    data.samples = (data.tokens - 1) / program.sequence;
    if (data.tokens < program.sequence + 1)
        return fail_note("%s: %lld tokens, one sample of sequence %lld needs %lld", program.data_train, (long long)data.tokens, (long long)program.sequence,
                         (long long)program.sequence + 1);
    return scan();
}

void data_describe(int64_t first, int64_t steps)
{
    static const char *const formats[] = {"bytes", "uint16", "uint32"};
    char tokens[32], samples[32];
    say("data: %s, %s, %s tokens in %lld file%s, %s samples an epoch", program.data_train, formats[program.data_format], count_text(data.tokens, tokens),
        (long long)data.files, data.files == 1 ? "" : "s", count_text(data.samples, samples));
    if ((first + steps) * program.global > data.samples)
        say("data: shorter than the run: after sample %s the stream begins again from its first token", samples);
}

int64_t data_step(int64_t step)
{
    const int64_t row = program.sequence + 1;
    int64_t valid = 0;
    for (int64_t j = 0; j < program.accumulation; j++)
        for (int64_t i = 0; i < program.local; i++) {
            int64_t sample = step * program.global + (j * world.size + world.rank) * program.local + i;
            int32_t *to = data.token + (j * program.local + i) * row;
            if (!read_stream(sample % data.samples * program.sequence, row, to))
                fail_now("rank %d, step %lld: %s", world.rank, (long long)step, fail_noted());
            for (int64_t k = 1; k < row; k++)
                valid += !program.has_ignore || to[k] != program.ignore;
        }
    int64_t before = step > 0 ? (step * program.global - 1) / data.samples : 0, now = ((step + 1) * program.global - 1) / data.samples;
    if (now > before)
        say("data: epoch %lld begins in step %lld", (long long)now, (long long)step);
    return valid;
}

void data_batch(int64_t micro_batch, int32_t *tokens, int32_t *targets)
{
    const int64_t row = program.sequence + 1;
    for (int64_t i = 0; i < program.local; i++) {
        const int32_t *from = data.token + (micro_batch * program.local + i) * row;
        memcpy(tokens + i * program.sequence, from, (size_t)program.sequence * sizeof *tokens);
        memcpy(targets + i * program.sequence, from + 1, (size_t)program.sequence * sizeof *targets);
    }
}
