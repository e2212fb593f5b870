/* `planc data pack`: joins files of tokens and writes them in the layout of a trainer. The files
 * are read twice: once for the largest id, which decides the width, and once to copy. `planc data
 * tokenize`: the same with the ids of their text; a vocabulary has a size, so they are read once.
 * The result has its name only when it is whole. */
#define _GNU_SOURCE
#include "base/escape.h"
#include "commands/build_sweep.h"
#include "commands/data_pack.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

enum form { FORM_RAW, FORM_NUMPY, FORM_LLMC, FORM_MEGATRON };

struct pack {
    const struct tokens_wish *wish;
    int64_t end_token;
    struct sentencepiece *model; /* NULL: ids are copied */
    VECTOR(char) text;           /* of a document, or of a line, so far */
    /* of the first reading */
    int64_t tokens, largest;
    bool is_text; /* all files are */
    /* of the second */
    bool writes;
    enum form form;
    int id_bytes;
    FILE *to;
    int broken; /* why something could not be written: an errno; 0 */
    int32_t last;
    int64_t since; /* tokens of the document so far */
    VECTOR(int32_t) length;
};

/* ── ids, one after the other ────────────────────────────────────────────────── */

static void put_id(struct pack *p, int32_t id)
{
    p->tokens++;
    p->since++;
    p->last = id;
    if (id > p->largest) p->largest = id;
    for (int k = 0; p->writes && k < p->id_bytes; k++)
        if (putc_unlocked((int)((uint32_t)id >> 8 * k & 0xFF), p->to) == EOF)
            p->broken = p->broken ? p->broken : errno;
}

static void end_document(struct pack *p)
{
    if (p->since == 0) return;
    if (p->end_token >= 0 && p->last != p->end_token) put_id(p, (int32_t)p->end_token);
    if (p->writes && p->form == FORM_MEGATRON) PUSH(&p->length, (int32_t)p->since);
    p->since = 0;
}

/* The text so far as ids. */
static bool put_text(struct pack *p, char *why)
{
    const char *wrong =
        p->text.n ? sentencepiece_encode(p->model, p->text.item, (size_t)p->text.n) : NULL;
    if (wrong) return snprintf(why, TOKENS_WHY, "%s", wrong) < 0;
    for (const int32_t *id = p->model->ids; p->text.n && id < p->model->end; id++) put_id(p, *id);
    p->text.n = 0;
    return true;
}

/* Text, line by line with the end of each; of JSON lines a document at once. */
static bool tokenize_file(struct pack *p, const struct tokens_file *f, char *why)
{
    static unsigned char buffer[TOKENS_BUFFER];
    static int32_t bytes[DATA_PIECE];
    if (!f->is_text)
        return snprintf(why, TOKENS_WHY, "%s: ids, and no text; --format bytes reads it as text",
                        f->path) < 0;
    for (int64_t at = 0, end; at < f->tokens; at = end) {
        if (!tokens_document_end(f, at, &end, why)) return false;
        for (int64_t n; at < end; at += n) {
            n = end - at < DATA_PIECE ? end - at : DATA_PIECE;
            if (!tokens_read(f, at, n, 0, buffer, bytes, why)) return false;
            for (int64_t i = 0; i < n; i++) {
                PUSH(&p->text, (char)bytes[i]);
                if (bytes[i] == '\n' && !tokens_marks_documents(f) && !put_text(p, why))
                    return false;
            }
        }
        if (!put_text(p, why)) return false;
        end_document(p);
    }
    return true;
}

/* A document longer than a length of Megatron's index holds is cut. */
static bool copy_file(struct pack *p, const struct tokens_file *f, char *why)
{
    static unsigned char buffer[TOKENS_BUFFER]; /* of all files, of which there may be many */
    static int32_t ids[DATA_PIECE];
    const bool marks = tokens_marks_documents(f);
    if (!p->writes && !tokens_check_index(f, 0, 1, buffer, why)) return false;
    for (int64_t at = 0, end; at < f->tokens; at = end) {
        if (!tokens_document_end(f, at, &end, why)) return false;
        for (int64_t n; at < end; at += n) {
            n = end - at < DATA_PIECE ? end - at : DATA_PIECE;
            if (!tokens_read(f, at, n, 0, buffer, ids, why)) return false;
            for (int64_t i = 0; i < n; i++) {
                put_id(p, ids[i]);
                if ((!marks && ids[i] == p->end_token) || p->since == INT32_MAX - 1)
                    end_document(p);
            }
        }
        end_document(p);
    }
    return true;
}

static bool copy_all(struct pack *p, const struct arguments *a, char *why)
{
    p->tokens = p->since = 0;
    for (int i = 1; i < a->word.n; i++) {
        struct tokens_file f;
        char warning[TOKENS_WHY];
        bool fine = tokens_open(&f, a->word.item[i], p->wish, warning, why);
        if (fine && warning[0] && !p->writes)
            fprintf(stderr, "planc: warning: %s: %s\n", f.path, warning);
        p->is_text = p->is_text && f.is_text;
        fine = fine && (p->model ? tokenize_file(p, &f, why) : copy_file(p, &f, why));
        tokens_close(&f);
        if (!fine) return false;
    }
    return true;
}

/* ── headers ─────────────────────────────────────────────────────────────────── */

static void put_number(FILE *to, uint64_t x, int bytes)
{
    for (int k = 0; k < bytes; k++) putc((int)(x >> 8 * k & 0xFF), to);
}

/* Headers have the same number of bytes whatever they count: they are written again at the end. */
static void numpy_header(const struct pack *p)
{
    const char *text = text_format("{'descr': '%s', 'fortran_order': False, 'shape': (%ld,), }",
                                   p->id_bytes == 1   ? "|u1"
                                   : p->id_bytes == 2 ? "<u2"
                                                      : "<u4",
                                   p->tokens);
    const int before = 10, all = 128;
    fwrite("\x93NUMPY\1\0", 1, 8, p->to);
    put_number(p->to, (uint64_t)(all - before), 2);
    fprintf(p->to, "%-*s\n", all - before - 1, text);
}

static void llmc_header(const struct pack *p)
{
    put_number(p->to, p->id_bytes == 2 ? 20240520 : 20240801, 4);
    put_number(p->to, p->id_bytes == 2 ? 1 : 7, 4);
    put_number(p->to, (uint64_t)p->tokens, 4);
    for (int i = 3; i < 256; i++) put_number(p->to, 0, 4);
}

static void put_header(const struct pack *p)
{
    switch (p->form) {
    case FORM_NUMPY: numpy_header(p); break;
    case FORM_LLMC: llmc_header(p); break;
    case FORM_RAW:
    case FORM_MEGATRON: break;
    }
}

/* A new file: nothing is written through a link. It is locked until the process ends, so that
 * nobody takes it for one that was left. NULL: errno. */
static FILE *create(const char *path)
{
    for (;;) {
        const int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);
        if (fd < 0) return NULL;
        struct stat s;
        (void)flock(fd, LOCK_EX); /* where a disk has no locks, another may remove it */
        if (fstat(fd, &s) || s.st_nlink > 0) {
            (void)fcntl(fd, F_DUPFD_CLOEXEC, 0); /* keeps the lock when the file is closed */
            return fdopen(fd, "wb");
        }
        (void)close(fd); /* somebody did so before it was locked */
    }
}

static const char *why_not(int error)
{
    return error == ELOOP ? "is a symbolic link" : strerror(error);
}

static bool megatron_index(const struct pack *p, const char *path)
{
    FILE *to = create(path);
    if (!to) return false;
    fwrite("MMIDIDX\0\0", 1, 9, to);
    put_number(to, 1, 8);
    put_number(to, p->id_bytes == 2 ? 8 : 4, 1); /* uint16, int32 */
    put_number(to, (uint64_t)p->length.n, 8);
    put_number(to, (uint64_t)p->length.n + 1, 8);
    for (int i = 0; i < p->length.n; i++) put_number(to, (uint64_t)p->length.item[i], 4);
    for (int64_t i = 0, at = 0; i < p->length.n; at += p->length.item[i++] * (int64_t)p->id_bytes)
        put_number(to, (uint64_t)at, 8);
    for (int i = 0; i <= p->length.n; i++) put_number(to, (uint64_t)i, 8);
    const bool fine = !ferror(to) && !fflush(to) && !fsync(fileno(to));
    return !fclose(to) && fine;
}

/* ── what is written ─────────────────────────────────────────────────────────── */

static bool ends_in(const char *text, const char *end)
{
    const size_t n = strlen(text), m = strlen(end);
    return n >= m && !strcmp(text + n - m, end);
}

/* False after a message; *status then says what the process ends with. */
static bool choose(struct pack *p, const struct arguments *a, int *status)
{
    static const struct {
        const char *name;
        enum form form;
        int id_bytes;
    } known[] = {{"raw", FORM_RAW, 0},          {"bytes", FORM_RAW, 1}, {"uint16", FORM_RAW, 2},
                 {"uint32", FORM_RAW, 4},       {"npy", FORM_NUMPY, 0}, {"llmc", FORM_LLMC, 0},
                 {"megatron", FORM_MEGATRON, 0}};
    const char *as = a->as ? a->as : ends_in(a->output, ".npy") ? "npy" : "raw";
    for (size_t i = 0; i < COUNT_OF(known); i++) {
        if (strcmp(as, known[i].name)) continue;
        p->form = known[i].form;
        const bool bytes = p->form == FORM_RAW && p->is_text && p->largest <= UINT8_MAX;
        p->id_bytes = known[i].id_bytes          ? known[i].id_bytes
                      : bytes                    ? 1
                      : p->largest <= UINT16_MAX ? 2
                                                 : 4;
        *status = EXIT_ENVIRONMENT;
        if (p->id_bytes < 4 && p->largest >= (int64_t)1 << 8 * p->id_bytes)
            command_fail(*status, "--as %s: the files hold the token id %ld; uint32 holds it", as,
                         p->largest);
        else if (p->form == FORM_LLMC && p->tokens > INT32_MAX)
            command_fail(*status,
                         "--as llmc: a header of llm.c counts up to %d tokens, the files "
                         "hold %ld; pack fewer of them at a time",
                         INT32_MAX, p->tokens);
        else
            return true;
        return false;
    }
    *status = command_fail(
        EXIT_USAGE, "--as is raw, bytes, uint16, uint32, npy, llmc or megatron, not '%s'", as);
    return false;
}

static bool write_out(struct pack *p, const struct arguments *a, const char *path, char *why)
{
    p->to = create(path);
    if (!p->to) return snprintf(why, TOKENS_WHY, "%s: %s", path, why_not(errno)) < 0;
    const int64_t tokens = p->tokens;
    p->writes = true;
    put_header(p);
    bool fine = copy_all(p, a, why);
    rewind(p->to);
    put_header(p);
    if (fine && (p->broken || fflush(p->to) || fsync(fileno(p->to)))) {
        snprintf(why, TOKENS_WHY, "%s: %s", path, strerror(p->broken ? p->broken : errno));
        fine = false;
    }
    if (fclose(p->to) && fine) {
        snprintf(why, TOKENS_WHY, "%s: %s", path, strerror(errno));
        fine = false;
    }
    if (fine && p->form == FORM_LLMC && p->tokens > INT32_MAX) {
        snprintf(why, TOKENS_WHY,
                 "--as llmc: a header of llm.c counts up to %d tokens, these are %ld", INT32_MAX,
                 p->tokens);
        fine = false;
    }
    if (fine && !p->model && p->tokens != tokens) {
        snprintf(why, TOKENS_WHY, "the files have changed while they were read");
        fine = false;
    }
    return fine;
}

/* A rename would put a file in the place of a device, a pipe or a link of /dev. */
static bool is_replaceable(const char *path)
{
    struct stat named, meant;
    if (lstat(path, &named)) return true;
    if (S_ISLNK(named.st_mode))
        return strncmp(path, "/dev/", 5) && (stat(path, &meant) || S_ISREG(meant.st_mode));
    return S_ISREG(named.st_mode);
}

/* The result is no file that is read. */
static bool is_input(const struct arguments *a, const char *path)
{
    char *mine = realpath(path, NULL);
    bool same = false;
    for (int i = 1; mine && i < a->word.n; i++) {
        char found[4096];
        const char *input = tokens_path(a->word.item[i], found, sizeof found);
        char *real = input ? realpath(input, NULL) : NULL;
        same = same || (real && !strcmp(real, mine));
        free(real);
    }
    free(mine);
    return same;
}

int data_pack(const struct arguments *a, const struct tokens_wish *wish, int64_t end_token,
              struct sentencepiece *model)
{
    struct pack p = {.wish = wish, .end_token = end_token, .model = model, .largest = -1};
    char why[TOKENS_WHY];
    int status;
    if (a->word.n < 2 || !a->output)
        return command_fail(EXIT_USAGE, "data %s takes files of %s, and -o FILE",
                            model ? "tokenize" : "pack", model ? "text" : "tokens");
    p.is_text = !model;
    if (model)
        p.largest = end_token < model->vocabulary ? model->vocabulary - 1 : end_token;
    else if (!copy_all(&p, a, why))
        return command_fail(EXIT_ENVIRONMENT, "%s", why);
    if (!choose(&p, a, &status)) return status;
    const bool megatron = p.form == FORM_MEGATRON;
    const char *prefix = megatron && ends_in(a->output, ".bin")
                             ? text_format("%.*s", (int)strlen(a->output) - 4, a->output)
                             : a->output,
               *path = megatron ? text_format("%s.bin", prefix) : prefix,
               *index = text_format("%s.idx", prefix),
               *whole = text_format("%s.%ld.partial", path, (long)getpid()),
               *index_whole = text_format("%s.%ld.partial", index, (long)getpid());
    if (!is_replaceable(path) || (megatron && !is_replaceable(index)))
        return command_fail(EXIT_ENVIRONMENT, "-o wants a file to write, and '%s' is not one",
                            is_replaceable(path) ? index : path);
    if (is_input(a, path))
        return command_fail(EXIT_USAGE, "-o %s is one of the files that are read", path);
    sweep_beside(path, ".partial", NULL);
    if (megatron) sweep_beside(index, ".partial", NULL);
    bool fine = write_out(&p, a, whole, why);
    if (fine && megatron && !megatron_index(&p, index_whole)) {
        snprintf(why, sizeof why, "%s: %s", index_whole, why_not(errno));
        fine = false;
    }
    if (fine && (rename(whole, path) || (megatron && rename(index_whole, index)))) {
        snprintf(why, sizeof why, "%s: %s", path, strerror(errno));
        fine = false;
    }
    if (!fine) {
        unlink(whole);
        if (megatron) unlink(index_whole);
        return command_fail(EXIT_ENVIRONMENT, "%s", why);
    }
    struct tokens_file f;
    const struct tokens_wish any = {.named = p.form == FORM_RAW && p.id_bytes == 1   ? TOKENS_BYTES
                                             : p.form == FORM_RAW && p.id_bytes == 2 ? TOKENS_UINT16
                                             : p.form == FORM_RAW                    ? TOKENS_UINT32
                                                                  : TOKENS_RECOGNISED};
    char warning[TOKENS_WHY], text[64];
    fine = tokens_open(&f, path, &any, warning, why);
    if (fine && a->json) {
        printf("{\"file\": ");
        struct text t = {0};
        escape_json(&t, path);
        printf("%s, \"format\": \"%s\", \"tokens\": %ld, \"largest_id\": %ld}\n", t.bytes,
               tokens_text(&f, text), f.tokens, p.largest);
    } else if (fine) {
        printf("%s: %s, %s tokens, largest id %s\n", path, tokens_text(&f, text),
               text_count(f.tokens), text_count(p.largest));
    }
    tokens_close(&f);
    return fine ? EXIT_FINE : command_fail(EXIT_ENVIRONMENT, "%s", why);
}
