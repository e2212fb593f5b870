/* Files of tokens as one stream of ids: pattern by pattern, the files of a pattern in the order of
 * their names. Sample i is the S + 1 tokens from i * S, so targets are inputs shifted by one; the
 * rest at the end is not used. Files are read with pread into memory that was allocated at start.
 * No id leaves this file before it is checked against the vocabulary. */
#define _GNU_SOURCE
#define XXH_INLINE_ALL
#include "stream.h"
#include "output.h"

#include <errno.h>
#include <glob.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <xxhash.h>

enum {
    SCAN_LIMIT = 1 << 28,
    PIECE = 1 << 15, /* tokens that are read before the watchdog is told that this rank moves */
    HASH_BLOCK = 1 << 16,
    HASH_BLOCKS = 1 << 10
};

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
static bool same_width(const struct stream *s, const struct file *file)
{
    const struct tokens_file *f = &file->f;
    char mine[64], others[64];
    for (const struct file *g = s->file; g < file; g++)
        if (program.data_format == FORMAT_RECOGNISED && f->layout == LAYOUT_RAW &&
            g->f.layout == LAYOUT_RAW && g->f.id_bytes != f->id_bytes)
            return fail_note("%s: looks like %s, and %s like %s; name the format of both: "
                             "data.format = uint16 or uint32",
                             f->path, tokens_text(f, mine), g->f.path, tokens_text(&g->f, others));
    return true;
}

static bool open_one(struct stream *s, const char *key, const char *path, unsigned char *raw)
{
    const struct tokens_wish wish = {.named = named(program.data_format),
                                     .field = program.data_field,
                                     .vocabulary = program.vocabulary};
    char why[TOKENS_WHY], warning[TOKENS_WHY];
    struct file *file = &s->file[s->files++];
    struct tokens_file *f = &file->f;
    if (!tokens_open(f, path, &wish, warning, why)) return fail_note("%s", why);
    if (warning[0]) say("warning: %s: %s", f->path, warning);
    for (const struct file *g = s->file; g < file; g++)
        if (g->f.device == f->device && g->f.inode == f->inode)
            return fail_note("%s: the same file as %s, its samples would come twice an epoch", path,
                             g->f.path);
    output_spare(key, f->path);
    if (f->index_path) output_spare(key, f->index_path);
    if (program.separate && program.end_token < 0 && !tokens_marks_documents(f)) {
        char text[64];
        return fail_note("%s: data.documents = separate, and nothing says where documents end: "
                         "%s have no marks; name the id that ends one, data.end_token = ID, or "
                         "give a file that marks them (Megatron with .idx, JSON lines)",
                         f->path, tokens_text(f, text));
    }
    file->first = s->tokens;
    s->tokens += f->tokens;
    s->bytes += f->file_bytes + f->index_bytes;
    s->is_text = (file == s->file || s->is_text) && f->is_text;
    return same_width(s, file) &&
           (tokens_check_index(f, world.rank, world.size, raw, why) || fail_note("%s", why));
}

/* Tokens [at, at + n) of one file, checked; to: NULL when only the check is wanted. */
static bool read_file(const struct file *f, int64_t at, int64_t n, struct reader *r, int32_t *to)
{
    while (n > 0) {
        const int64_t some = n < PIECE ? n : PIECE;
        if (!tokens_read(&f->f, at, some, program.vocabulary, r->raw, to, r->why)) return false;
        to = to ? to + some : NULL;
        at += some;
        n -= some;
        atomic_fetch_add(&r->pieces, 1);
        if (r->is_main) position_moved();
    }
    return true;
}

/* The last file that begins at or before token `at`. */
static int64_t file_at(const struct stream *s, int64_t at)
{
    int64_t low = 0, high = s->files - 1;
    while (low < high) {
        int64_t middle = (low + high + 1) / 2;
        if (s->file[middle].first <= at)
            low = middle;
        else
            high = middle - 1;
    }
    return low;
}

const char *stream_place(const struct stream *s, int64_t at, int64_t *token)
{
    const struct file *f = &s->file[file_at(s, at)];
    *token = at - f->first;
    return f->f.path;
}

bool stream_read(const struct stream *s, int64_t at, int64_t n, struct reader *r, int32_t *to)
{
    for (int64_t i = file_at(s, at); n > 0; i++) {
        const struct file *f = &s->file[i];
        int64_t from = at - f->first, some = f->f.tokens - from < n ? f->f.tokens - from : n;
        if (some > 0 && !read_file(f, from, some, r, to)) return false;
        to = to ? to + some : NULL;
        at += some;
        n -= some;
    }
    return true;
}

bool stream_documents(const struct stream *s, int64_t at, int64_t n, const int32_t *token,
                      struct reader *r, int32_t *first)
{
    int64_t k = 0;
    for (int64_t i = file_at(s, at); k < n; i++) {
        const struct tokens_file *f = &s->file[i].f;
        const bool marks = tokens_marks_documents(f);
        const int64_t from = at + k - s->file[i].first, begin = k,
                      end = f->tokens - from < n - k ? k + f->tokens - from : n;
        int64_t marked = begin; /* where the file says that the next document begins */
        for (; k < end; k++) {
            const bool begins = k == begin || k == marked || token[k - 1] == program.end_token;
            first[k] = begins ? (int32_t)k : first[k - 1];
            if (k != marked) continue;
            if (marks && !tokens_document_end(f, from + k - begin, &marked, r->why)) return false;
            marked = marks ? begin + marked - from : n;
        }
    }
    return true;
}

/* Ids that no vocabulary of this size has are found before the first step as far as that costs
 * little: each rank looks at its part of the stream. What lies beyond is checked when it is
 * read. */
bool stream_scan(const struct stream *s, struct reader *r)
{
    int64_t widest = 1;
    for (int64_t i = 0; i < s->files; i++)
        if (s->file[i].f.id_bytes > widest) widest = s->file[i].f.id_bytes;
    if (widest < 4 && program.vocabulary >= (int64_t)1 << 8 * widest) return true;
    int64_t share = (s->tokens + world.size - 1) / world.size, from = share * world.rank,
            n = s->tokens - from;
    n = n < share ? n : share;
    n = n < SCAN_LIMIT / widest ? n : SCAN_LIMIT / widest;
    return n <= 0 || stream_read(s, from, n, r, NULL) || fail_note("%s", r->why);
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

bool stream_open(struct stream *s, const char *key, const char *const *name, int n,
                 struct reader *r)
{
    glob_t *found = ROOM(glob_t, n);
    int64_t most = 0;
    for (int i = 0; i < n; i++) {
        if (!search(name[i], &found[i])) return false;
        most += found[i].gl_pathc ? (int64_t)found[i].gl_pathc : 1;
    }
    s->file = ROOM(struct file, most);
    for (int i = 0; i < n; i++) {
        if (found[i].gl_pathc == 0 && !open_one(s, key, name[i], r->raw)) return false;
        for (size_t k = 0; k < found[i].gl_pathc; k++)
            if (!is_index(found[i].gl_pathv[k], &found[i]) &&
                !open_one(s, key, found[i].gl_pathv[k], r->raw))
                return false;
        globfree(&found[i]);
    }
    s->samples = s->tokens > 0 ? (s->tokens - 1) / program.sequence : 0;
    return true;
}

/* ── what the files hold, in one number ──────────────────────────────────────── */

/* Bytes [from, from + n) of a file. */
static void hash_stretch(XXH3_state_t *h, int fd, int64_t from, int64_t n, unsigned char *raw)
{
    for (int64_t done = 0; done < n;) {
        const int64_t want = n - done < TOKENS_BUFFER ? n - done : TOKENS_BUFFER;
        const ssize_t got = pread(fd, raw, (size_t)want, (off_t)(from + done));
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0) return; /* shorter than it was: another hash, and an error when it is read */
        XXH3_64bits_update(h, raw, (size_t)got);
        done += got;
        position_moved();
    }
}

/* The size of a file, and some of its blocks. */
static void hash_blocks(XXH3_state_t *h, int fd, int64_t bytes, double total, unsigned char *raw)
{
    int64_t blocks = (int64_t)((double)HASH_BLOCKS * (double)bytes / total);
    blocks = blocks < 2 ? 2 : blocks;
    XXH3_64bits_update(h, &bytes, sizeof bytes);
    if (bytes <= blocks * HASH_BLOCK)
        hash_stretch(h, fd, 0, bytes, raw);
    else
        for (int64_t k = 0; k < blocks; k++)
            hash_stretch(h, fd,
                         (int64_t)((double)(bytes - HASH_BLOCK) * (double)k / (double)(blocks - 1)),
                         HASH_BLOCK, raw);
}

uint64_t stream_fingerprint(const struct stream *s, int n, struct reader *r)
{
    static XXH3_state_t state;
    double total = 0;
    for (int k = 0; k < n; k++) total += (double)s[k].bytes;
    XXH3_64bits_reset(&state);
    for (int k = 0; k < n; k++)
        for (int64_t i = 0; i < s[k].files; i++) {
            const struct tokens_file *f = &s[k].file[i].f;
            hash_blocks(&state, f->fd, f->file_bytes, total, r->raw);
            if (f->index_fd >= 0) hash_blocks(&state, f->index_fd, f->index_bytes, total, r->raw);
        }
    return XXH3_64bits_digest(&state);
}

bool stream_agree(const struct stream *s, const char *name)
{
    struct agreed_file *file = ROOM(struct agreed_file, 2 * s->files);
    int64_t n = 0;
    for (int64_t i = 0; i < s->files; i++) {
        const struct tokens_file *f = &s->file[i].f;
        file[n++] = (struct agreed_file){f->path, f->fd, f->file_bytes};
        if (f->index_fd >= 0)
            file[n++] = (struct agreed_file){f->index_path, f->index_fd, f->index_bytes};
    }
    return agree_files(name, file, n);
}

const char *stream_format(const struct stream *s, char text[64])
{
    char other[64];
    tokens_text(&s->file[0].f, text);
    for (int64_t i = 1; i < s->files; i++)
        if (strcmp(text, tokens_text(&s->file[i].f, other))) return "several formats";
    return text;
}
