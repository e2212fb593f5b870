/* Opens a file of tokens and reads ids. What the file is follows from its content, or the plan
 * names it and the content agrees: ids that are read in another width, or a header that is read as
 * ids, are valid ids that train on noise. */
#define _GNU_SOURCE
#include "formats/recognise.h"
#include "formats/tokens_inside.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

uint64_t tokens_little(const unsigned char *p, int n)
{
    uint64_t x = 0;
    while (n-- > 0) x = x << 8 | p[n];
    return x;
}

bool tokens_bytes(int fd, const char *path, int64_t at, void *to, int64_t n, char why[TOKENS_WHY])
{
    for (int64_t got = 0; got < n;) {
        const ssize_t some = pread(fd, (char *)to + got, (size_t)(n - got), (off_t)(at + got));
        if (some < 0 && errno == EINTR) continue;
        if (some <= 0)
            return tokens_wrong(why, "%s: byte %lld: %s", path, (long long)(at + got),
                                some < 0 ? strerror(errno)
                                         : "the file has become shorter since the start");
        got += some;
    }
    return true;
}

const char *tokens_path(const char *path, char *to, size_t bytes)
{
    const size_t n = strlen(path);
    const bool index = n > 4 && !strcmp(path + n - 4, ".idx"), there = access(path, F_OK) == 0;
    if ((there && !index) || n + 5 > bytes) return there ? path : NULL;
    const int error = errno;
    snprintf(to, bytes, "%.*s.bin", (int)(index ? n - 4 : n), path);
    if (access(to, F_OK) == 0) return to;
    errno = error;
    return there ? path : NULL;
}

static const char *const width_names[] =
    {[1] = "bytes", [2] = "uint16", [4] = "uint32", [8] = "64 bits"};

const char *tokens_text(const struct tokens_file *f, char text[64])
{
    static const char *const unsigned_ids[] = {
        [1] = "uint8", [2] = "uint16", [4] = "uint32", [8] = "uint64"};
    static const char *const signed_ids[] = {
        [1] = "int8", [2] = "int16", [4] = "int32", [8] = "int64"};
    const char *ids = f->is_signed ? signed_ids[f->id_bytes] : unsigned_ids[f->id_bytes];
    switch (f->layout) {
    case LAYOUT_RAW: snprintf(text, 64, "%s", width_names[f->id_bytes]); break;
    case LAYOUT_NUMPY: snprintf(text, 64, "NumPy %s", ids); break;
    case LAYOUT_LLMC: snprintf(text, 64, "llm.c %s", ids); break;
    case LAYOUT_MEGATRON: snprintf(text, 64, "Megatron %s", ids); break;
    case LAYOUT_JSON_LINES: snprintf(text, 64, "JSON lines"); break;
    }
    return text;
}

/* ── what a file is ──────────────────────────────────────────────────────────── */

static const char *name_of(enum tokens_named named)
{
    switch (named) {
    case TOKENS_RECOGNISED: return "auto";
    case TOKENS_BYTES: return "bytes";
    case TOKENS_UINT16: return "uint16";
    case TOKENS_UINT32: return "uint32";
    case TOKENS_MEGATRON: return "megatron";
    case TOKENS_NUMPY: return "npy";
    case TOKENS_LLMC: return "llmc";
    case TOKENS_JSON_LINES: return "jsonl";
    }
    return "";
}

/* Bytes of an id that is named by its width alone; 0: named otherwise, or not at all. */
static int named_bytes(enum tokens_named named)
{
    switch (named) {
    case TOKENS_BYTES: return 1;
    case TOKENS_UINT16: return 2;
    case TOKENS_UINT32: return 4;
    case TOKENS_RECOGNISED:
    case TOKENS_MEGATRON:
    case TOKENS_NUMPY:
    case TOKENS_LLMC:
    case TOKENS_JSON_LINES: break;
    }
    return 0;
}

/* A header or an index says what the ids are: the plan must not say otherwise. */
static bool header_agrees(const struct tokens_file *f, enum tokens_named named, char *why)
{
    static const enum tokens_named same[] = {[LAYOUT_RAW] = TOKENS_RECOGNISED,
                                             [LAYOUT_NUMPY] = TOKENS_NUMPY,
                                             [LAYOUT_LLMC] = TOKENS_LLMC,
                                             [LAYOUT_MEGATRON] = TOKENS_MEGATRON,
                                             [LAYOUT_JSON_LINES] = TOKENS_JSON_LINES};
    char text[64];
    if (named == TOKENS_RECOGNISED || named == same[f->layout] || named_bytes(named) == f->id_bytes)
        return true;
    return tokens_wrong(
        why,
        "%s: a file of %s ids%s%s, and the plan says format = %s; leave data.format "
        "out, or format = %s",
        f->path, tokens_text(f, text), f->index_path ? " by its index " : "",
        f->index_path ? f->index_path : "", name_of(named), name_of(same[f->layout]));
}

/* Ids without header: named by the plan and not something else, or judged by their bytes. */
static bool open_raw(struct tokens_file *f, const struct tokens_wish *wish,
                     const unsigned char *head, size_t n, char *warning, char *why)
{
    char said[512];
    const int named = named_bytes(wish->named);
    f->id_bytes = named ? named : recognise_width(head, n, wish->vocabulary);
    switch (recognise(head, n, f->file_bytes, f->id_bytes, wish->vocabulary, said, sizeof said)) {
    case RECOGNISED_FINE: break;
    case RECOGNISED_DOUBT:
        if (named) snprintf(warning, TOKENS_WHY, "%s", said);
        break;
    case RECOGNISED_WRONG: return tokens_wrong(why, "%s: %s", f->path, said);
    }
    if (f->file_bytes % f->id_bytes)
        return tokens_wrong(why, "%s: %lld bytes are no whole number of tokens of %d bytes",
                            f->path, (long long)f->file_bytes, f->id_bytes);
    f->is_text = f->id_bytes == 1;
    f->tokens = f->file_bytes / f->id_bytes;
    return true;
}

static bool is_named_otherwise(const struct tokens_file *f, enum tokens_named named, char *why)
{
    const char *what = named == TOKENS_NUMPY  ? "it has no header of NumPy"
                       : named == TOKENS_LLMC ? "it has no header of llm.c"
                                              : NULL;
    if (named == TOKENS_MEGATRON && f->index_path)
        return !tokens_wrong(why,
                             "%s: format = megatron, and the index %s is not there or is none "
                             "of Megatron's; copy it beside the .bin",
                             f->path, f->index_path);
    if (named == TOKENS_MEGATRON) what = "its name does not end in .bin, beside which an .idx lies";
    if (!what) return false;
    return !tokens_wrong(why,
                         "%s: format = %s, and %s; leave data.format out, and the content "
                         "decides",
                         f->path, name_of(named), what);
}

static bool open_content(struct tokens_file *f, const struct tokens_wish *wish, char *warning,
                         char *why)
{
    bool is = false;
    char said[512];
    unsigned char *head = malloc(RECOGNISE_BYTES);
    const ssize_t n = head ? pread(f->fd, head, RECOGNISE_BYTES, 0) : -1;
    bool fine = n >= 0 || tokens_wrong(why, "%s: %s", f->path, strerror(errno));
    const size_t got = n < 0 ? 0 : (size_t)n;
    if (fine) fine = tokens_numpy(f, head, got, &is, why);
    if (fine && !is) fine = tokens_llmc(f, head, got, &is, why);
    if (fine && !is) fine = tokens_megatron(f, &is, why);
    if (!is) { /* an index of something else does not count */
        if (fine && is_named_otherwise(f, wish->named, why)) fine = false;
        free(f->index_path);
        f->index_path = NULL;
    }
    if (fine && is)
        fine = header_agrees(f, wish->named, why);
    else if (fine && wish->named == TOKENS_JSON_LINES &&
             recognise_marked(head, got, f->file_bytes, said, sizeof said))
        fine = tokens_wrong(why, "%s: %s", f->path, said);
    else if (fine && (wish->named == TOKENS_JSON_LINES ||
                      (wish->named == TOKENS_RECOGNISED &&
                       recognise_json_lines(head, got, wish->vocabulary))))
        fine = json_lines_open(f, wish, why);
    else if (fine)
        fine = open_raw(f, wish, head, got, warning, why);
    free(head);
    return fine;
}

bool tokens_open(struct tokens_file *f, const char *path, const struct tokens_wish *wish,
                 char warning[TOKENS_WHY], char why[TOKENS_WHY])
{
    char found[4096];
    struct stat s;
    const char *name = tokens_path(path, found, sizeof found);
    warning[0] = why[0] = 0;
    *f = (struct tokens_file){.fd = -1, .index_fd = -1, .documents = -1, .path = strdup(path)};
    if (!name || !f->path) return tokens_wrong(why, "%s: %s", path, strerror(errno));
    if (name != path) {
        free(f->path);
        f->path = strdup(name);
        if (!f->path) return tokens_wrong(why, "%s: %s", path, strerror(ENOMEM));
    }
    /* O_NONBLOCK: a pipe is refused, nobody waits for its other end */
    f->fd = open(name, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    if (f->fd < 0 || fstat(f->fd, &s) != 0)
        return tokens_wrong(why, "%s: %s", name, strerror(errno));
    if (!S_ISREG(s.st_mode)) return tokens_wrong(why, "%s: not a file of tokens", name);
    f->file_bytes = s.st_size;
    f->device = (uint64_t)s.st_dev;
    f->inode = (uint64_t)s.st_ino;
    return open_content(f, wish, warning, why);
}

void tokens_close(struct tokens_file *f)
{
    if (f->fd >= 0) close(f->fd); /* only read */
    if (f->index_fd >= 0) close(f->index_fd);
    json_lines_close(f->lines);
    free(f->path);
    free(f->index_path);
    *f = (struct tokens_file){.fd = -1, .index_fd = -1};
}

/* ── ids ─────────────────────────────────────────────────────────────────────── */

static bool bad_id(const struct tokens_file *f, int64_t at, uint64_t id, int64_t vocabulary,
                   char *why)
{
    char text[32];
    if (f->is_signed && id >> (8 * f->id_bytes - 1))
        snprintf(text, sizeof text, "%lld",
                 (long long)(id | (f->id_bytes < 8 ? ~UINT64_C(0) << 8 * f->id_bytes : 0)));
    else
        snprintf(text, sizeof text, "%llu", (unsigned long long)id);
    if (!vocabulary)
        return tokens_wrong(why,
                            "%s: token id %s at byte %lld (token %lld of the file): no "
                            "vocabulary has it",
                            f->path, text, (long long)(f->header_bytes + at * f->id_bytes),
                            (long long)at);
    return tokens_wrong(why,
                        "%s: token id %s at byte %lld (token %lld of the file); the vocabulary has "
                        "%lld ids, 0 to %lld",
                        f->path, text, (long long)(f->header_bytes + at * f->id_bytes),
                        (long long)at, (long long)vocabulary, (long long)vocabulary - 1);
}

bool tokens_read(const struct tokens_file *f, int64_t at, int64_t n, int64_t vocabulary,
                 unsigned char buffer[TOKENS_BUFFER], int32_t *to, char why[TOKENS_WHY])
{
    const uint64_t limit = vocabulary ? (uint64_t)vocabulary : (uint64_t)1 << 31;
    const int64_t most = TOKENS_BUFFER / f->id_bytes;
    if (f->lines) { /* bytes: checked when they are wanted */
        if (!to) return true;
        if (!json_lines_read(f, at, n, buffer, to, why)) return false;
        for (int64_t i = 0; i < n; i++)
            if ((uint32_t)to[i] >= limit)
                return tokens_wrong(
                    why,
                    "%s: a byte of %d as token %lld; the vocabulary has %lld ids, 0 "
                    "to %lld",
                    f->path, to[i], (long long)(at + i), (long long)vocabulary,
                    (long long)vocabulary - 1);
        return true;
    }
    while (n > 0) {
        const int64_t some = n < most ? n : most;
        if (!tokens_bytes(f->fd, f->path, f->header_bytes + at * f->id_bytes, buffer,
                          some * f->id_bytes, why))
            return false;
        for (int64_t i = 0; i < some; i++) {
            const uint64_t id = tokens_little(buffer + i * f->id_bytes, f->id_bytes);
            if (id >= limit || (f->is_signed && id >> (8 * f->id_bytes - 1)))
                return bad_id(f, at + i, id, vocabulary, why);
            if (to) to[i] = (int32_t)id;
        }
        to = to ? to + some : NULL;
        at += some;
        n -= some;
    }
    return true;
}

bool tokens_marks_documents(const struct tokens_file *f)
{
    return f->lines || (f->layout == LAYOUT_MEGATRON && f->documents > 0);
}

bool tokens_document_end(const struct tokens_file *f, int64_t at, int64_t *end,
                         char why[TOKENS_WHY])
{
    *end = f->lines ? json_lines_end(f->lines, at) : f->tokens;
    return f->lines || !tokens_marks_documents(f) || tokens_megatron_end(f, at, end, why);
}
