/* Headers and indices of other trainers' token files. Everything that a header says is held against
 * the size of the file: a copy that was cut off would else train on what is left of it. */
#define _GNU_SOURCE
#include "formats/tokens_inside.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* ── NumPy ───────────────────────────────────────────────────────────────────── */

/* The text behind 'key': in the header's dictionary, without blanks before it; NULL: none. */
static const char *numpy_value(const char *header, const char *key)
{
    char quoted[32];
    snprintf(quoted, sizeof quoted, "'%s'", key);
    const char *at = strstr(header, quoted);
    if (!at) return NULL;
    at += strlen(quoted);
    at += strspn(at, " ");
    if (*at != ':') return NULL;
    return at + 1 + strspn(at + 1, " ");
}

/* '<u2' and the like. False: no type of whole numbers that can be read. */
static bool numpy_type(struct tokens_file *f, const char *text)
{
    const char order = text && text[0] == '\'' ? text[1] : 0;
    const char *kind = order && strchr("<>=|", order) ? text + 2 : text ? text + 1 : "";
    if (!order || (kind[0] != 'u' && kind[0] != 'i') || kind[2] != '\'') return false;
    f->id_bytes = kind[1] - '0';
    f->is_signed = kind[0] == 'i';
    const bool known = f->id_bytes == 1 || f->id_bytes == 2 || f->id_bytes == 4 || f->id_bytes == 8;
    return known && (order != '>' || f->id_bytes == 1);
}

/* (100,) or (100, 32): how many numbers; -1: no shape. */
static int64_t numpy_count(const char *text, int *dimensions)
{
    int64_t n = 1;
    *dimensions = 0;
    if (!text || *text++ != '(') return -1;
    for (;;) {
        char *end;
        text += strspn(text, " ,");
        if (*text == ')') return n;
        const long long dim = strtoll(text, &end, 10);
        if (end == text || dim < 0 || __builtin_mul_overflow(n, (int64_t)dim, &n)) return -1;
        text = end + (*end == 'L');
        (*dimensions)++;
    }
}

bool tokens_numpy(struct tokens_file *f, const unsigned char *head, size_t n, bool *is,
                  char why[TOKENS_WHY])
{
    enum { LONGEST = 1 << 14 };
    char header[LONGEST + 1];
    *is = n >= 10 && !memcmp(head, "\x93NUMPY", 6);
    if (!*is) return true;
    const int before = head[6] == 1 ? 10 : 12;
    const int64_t length =
        n < (size_t)before ? -1 : (int64_t)tokens_little(head + 8, before == 10 ? 2 : 4);
    if (head[6] < 1 || head[6] > 3 || length < 0 || length > LONGEST ||
        (size_t)(before + length) > n)
        return tokens_wrong(why,
                            "%s: a NumPy file whose header is not whole; write it again with "
                            "numpy.save",
                            f->path);
    memcpy(header, head + before, (size_t)length);
    header[length] = 0;
    f->layout = LAYOUT_NUMPY;
    f->header_bytes = before + length;
    const char *type = numpy_value(header, "descr");
    if (!numpy_type(f, type)) {
        const int shown = type ? (int)strcspn(type, ",}") : 1;
        return tokens_wrong(why,
                            "%s: a NumPy file of type %.*s at byte %d; ids are whole numbers, the "
                            "lowest byte first: numpy.save(FILE, numpy.load(FILE).astype(\"<u4\"))",
                            f->path, shown > 40 ? 40 : shown, type ? type : "?",
                            type ? before + (int)(type - header) : before);
    }
    int dimensions;
    const int64_t count = numpy_count(numpy_value(header, "shape"), &dimensions);
    const char *columns = numpy_value(header, "fortran_order");
    if (count < 0)
        return tokens_wrong(why, "%s: a NumPy file without a shape; write it again with numpy.save",
                            f->path);
    if (dimensions > 1 && columns && !strncmp(columns, "True", 4))
        return tokens_wrong(why,
                            "%s: a NumPy file whose rows are not stored one after the other "
                            "(fortran_order); write it with numpy.ascontiguousarray",
                            f->path);
    const int64_t held = (f->file_bytes - f->header_bytes) / f->id_bytes,
                  rest = (f->file_bytes - f->header_bytes) % f->id_bytes;
    if (count != held || rest)
        return tokens_wrong(why,
                            "%s: the NumPy header counts %lld ids of %d bytes, and %lld bytes "
                            "follow it at byte %lld: %s",
                            f->path, (long long)count, f->id_bytes,
                            (long long)(f->file_bytes - f->header_bytes),
                            (long long)f->header_bytes,
                            held < count ? "the file is cut off; copy it again"
                                         : "it is no file of one array; write the ids alone");
    f->tokens = count;
    return true;
}

/* ── llm.c ───────────────────────────────────────────────────────────────────── */

enum { LLMC_HEADER = 1024, LLMC_GPT2 = 20240520, LLMC_LLAMA3 = 20240801, LLMC_CHOICES = 20240522 };

bool tokens_llmc(struct tokens_file *f, const unsigned char *head, size_t n, bool *is,
                 char why[TOKENS_WHY])
{
    const uint64_t magic = n >= 12 ? tokens_little(head, 4) : 0;
    if (magic == LLMC_CHOICES && n >= LLMC_HEADER && tokens_little(head + 4, 4) == 1) {
        *is = true;
        return tokens_wrong(why,
                            "%s: llm.c's file of multiple choice, no stream of tokens; take a "
                            "_train_ or _val_ file",
                            f->path);
    }
    *is = magic == LLMC_GPT2 || magic == LLMC_LLAMA3;
    if (!*is) return true;
    const uint64_t version = tokens_little(head + 4, 4);
    const int64_t count = (int64_t)tokens_little(head + 8, 4);
    f->layout = LAYOUT_LLMC;
    f->id_bytes = magic == LLMC_GPT2 ? 2 : 4;
    f->header_bytes = LLMC_HEADER;
    if (version != (magic == LLMC_GPT2 ? 1 : 7))
        return tokens_wrong(why,
                            "%s: a file of llm.c of version %llu at byte 4, of which planc reads "
                            "version %d; write it again with llm.c's data scripts",
                            f->path, (unsigned long long)version, magic == LLMC_GPT2 ? 1 : 7);
    if (f->file_bytes - LLMC_HEADER != count * f->id_bytes)
        return tokens_wrong(
            why,
            "%s: llm.c's header counts %lld ids of %d bytes at byte 8, and %lld "
            "bytes follow it: %s",
            f->path, (long long)count, f->id_bytes,
            (long long)(f->file_bytes < LLMC_HEADER ? 0 : f->file_bytes - LLMC_HEADER),
            f->file_bytes - LLMC_HEADER < count * f->id_bytes
                ? "the file is cut off; copy it again"
                : "write it again with llm.c's data scripts");
    f->tokens = count;
    return true;
}

/* ── Megatron ────────────────────────────────────────────────────────────────── */

/* magic, version, type, number of sequences, number of entries of documents; then 4 bytes of length
 * and 8 of place for each sequence, and 8 for each entry of documents: where it begins, and the
 * end of the last. A last byte for each sequence is a mode, of data that is more than text. */
enum { MEGATRON_HEADER = 34, MEGATRON_LENGTH = 4, MEGATRON_PLACE = 8 };

/* Its codes; 6 and 7 are numbers with fractions. */
static bool megatron_type(struct tokens_file *f, int code)
{
    static const struct {
        int bytes;
        bool is_signed;
    } type[] = {{0, false}, {1, false}, {1, true},  {2, true}, {4, true},
                {8, true},  {0, false}, {0, false}, {2, false}};
    if (code < 1 || code >= (int)(sizeof type / sizeof *type) || !type[code].bytes) return false;
    f->id_bytes = type[code].bytes;
    f->is_signed = type[code].is_signed;
    return true;
}

static int64_t sequence_length(const unsigned char *p)
{
    return (int32_t)(uint32_t)tokens_little(p, MEGATRON_LENGTH);
}

bool tokens_megatron(struct tokens_file *f, bool *is, char why[TOKENS_WHY])
{
    unsigned char head[MEGATRON_HEADER], last[MEGATRON_PLACE], length[MEGATRON_LENGTH];
    struct stat s;
    const size_t n = strlen(f->path);
    *is = false;
    if (n < 5 || strcmp(f->path + n - 4, ".bin")) return true;
    free(f->index_path);
    f->index_path = strdup(f->path);
    if (!f->index_path) return tokens_wrong(why, "%s: %s", f->path, strerror(ENOMEM));
    memcpy(f->index_path + n - 4, ".idx", 4);
    const int fd = open(f->index_path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    const ssize_t got = fd < 0 ? 0 : pread(fd, head, sizeof head, 0);
    const bool old = got >= 6 && !memcmp(head, "TNTIDX", 6),
               ours = got >= 9 && !memcmp(head, "MMIDIDX\0\0", 9);
    if (fd >= 0 && !old && !ours) close(fd);
    if (!old && !ours) return true; /* an index of something else, or none */
    *is = true;
    f->layout = LAYOUT_MEGATRON;
    f->index_fd = fd;
    const char *index = f->index_path;
    if (old)
        return tokens_wrong(why,
                            "%s: an index of fairseq's kind (TNTIDX); Megatron's "
                            "tools/preprocess_data.py writes one that planc reads",
                            index);
    if (fstat(fd, &s) != 0) return tokens_wrong(why, "%s: %s", index, strerror(errno));
    f->index_bytes = s.st_size;
    if (got < MEGATRON_HEADER)
        return tokens_wrong(why,
                            "%s: %lld bytes, less than the %d of its header: the file is cut "
                            "off; copy it again",
                            index, (long long)s.st_size, MEGATRON_HEADER);
    if (tokens_little(head + 9, 8) != 1)
        return tokens_wrong(why,
                            "%s: version %llu at byte 9, of which planc reads version 1; write "
                            "it again with Megatron's tools/preprocess_data.py",
                            index, (unsigned long long)tokens_little(head + 9, 8));
    if (!megatron_type(f, head[17]))
        return tokens_wrong(why,
                            "%s: ids of type %d at byte 17, which are no whole numbers; write it "
                            "again with Megatron's tools/preprocess_data.py",
                            index, head[17]);
    const uint64_t sequences = tokens_little(head + 18, 8), entries = tokens_little(head + 26, 8);
    const uint64_t most = (uint64_t)s.st_size;
    const int64_t wants = sequences > most || entries > most
                              ? -1
                              : MEGATRON_HEADER +
                                    (MEGATRON_LENGTH + MEGATRON_PLACE) * (int64_t)sequences +
                                    MEGATRON_PLACE * (int64_t)entries;
    if (wants < 0 || (wants != s.st_size && wants + (int64_t)sequences != s.st_size))
        return tokens_wrong(
            why,
            "%s: its header counts %llu sequences and %llu documents at byte 18, "
            "and its %lld bytes are not as many as these take: the file is cut off; "
            "copy it again",
            index, (unsigned long long)sequences, (unsigned long long)entries,
            (long long)s.st_size);
    if (f->file_bytes % f->id_bytes)
        return tokens_wrong(why,
                            "%s: %lld bytes are no whole number of ids of %d bytes, which %s "
                            "says; copy both again",
                            f->path, (long long)f->file_bytes, f->id_bytes, index);
    f->sequences = (int64_t)sequences;
    f->documents = (int64_t)entries - 1;
    f->tokens = f->file_bytes / f->id_bytes;
    int64_t counted = 0;
    if (sequences) {
        const int64_t at = MEGATRON_HEADER + MEGATRON_LENGTH * (f->sequences - 1);
        if (!tokens_bytes(fd, index, at, length, sizeof length, why) ||
            !tokens_bytes(fd, index,
                          MEGATRON_HEADER + MEGATRON_LENGTH * f->sequences +
                              MEGATRON_PLACE * (f->sequences - 1),
                          last, sizeof last, why))
            return false;
        counted =
            (int64_t)tokens_little(last, MEGATRON_PLACE) / f->id_bytes + sequence_length(length);
    }
    if (counted != f->tokens)
        return tokens_wrong(why, "%s: %lld ids of %d bytes, and %s counts %lld: %s", f->path,
                            (long long)f->tokens, f->id_bytes, index, (long long)counted,
                            counted > f->tokens ? "the file is cut off; copy it again"
                                                : "the index is of another file; copy both again");
    return true;
}

/* Entries of documents [from, to): each a number of sequences, not below the one before it. */
static bool check_documents(const struct tokens_file *f, int64_t from, int64_t to,
                            unsigned char *buffer, char why[TOKENS_WHY])
{
    const int64_t base = MEGATRON_HEADER + (MEGATRON_LENGTH + MEGATRON_PLACE) * f->sequences;
    int64_t before = 0;
    for (int64_t i = from; i < to;) {
        const int64_t n =
            to - i < TOKENS_BUFFER / MEGATRON_PLACE ? to - i : TOKENS_BUFFER / MEGATRON_PLACE;
        if (!tokens_bytes(f->index_fd, f->index_path, base + MEGATRON_PLACE * i, buffer,
                          n * MEGATRON_PLACE, why))
            return false;
        for (int64_t k = 0; k < n; k++, i++) {
            const int64_t entry = (int64_t)tokens_little(buffer + MEGATRON_PLACE * k, 8);
            if (entry < before || entry > f->sequences || (i == 0 && entry != 0) ||
                (i == f->documents && entry != f->sequences))
                return tokens_wrong(why,
                                    "%s: document %lld begins at sequence %lld (byte %lld): the "
                                    "index is damaged; copy it again",
                                    f->index_path, (long long)i, (long long)entry,
                                    (long long)(base + MEGATRON_PLACE * i));
            before = entry;
        }
    }
    return true;
}

bool tokens_check_index(const struct tokens_file *f, int64_t part, int64_t parts,
                        unsigned char buffer[TOKENS_BUFFER], char why[TOKENS_WHY])
{
    enum { SOME = TOKENS_BUFFER / (MEGATRON_LENGTH + MEGATRON_PLACE) };
    if (f->layout != LAYOUT_MEGATRON || !f->sequences) return true;
    const int64_t share = (f->sequences + parts - 1) / parts, from = share * part,
                  to = from + share < f->sequences ? from + share : f->sequences;
    const int64_t places = MEGATRON_HEADER + MEGATRON_LENGTH * f->sequences;
    unsigned char *const length = buffer, *const place = buffer + MEGATRON_LENGTH * SOME;
    int64_t next = from == 0 ? 0 : -1; /* where the next sequence begins; -1: not known */
    for (int64_t i = from; i < to;) {
        const int64_t n = to - i < SOME ? to - i : SOME;
        if (!tokens_bytes(f->index_fd, f->index_path, MEGATRON_HEADER + MEGATRON_LENGTH * i, length,
                          n * MEGATRON_LENGTH, why) ||
            !tokens_bytes(f->index_fd, f->index_path, places + MEGATRON_PLACE * i, place,
                          n * MEGATRON_PLACE, why))
            return false;
        for (int64_t k = 0; k < n; k++, i++) {
            const int64_t tokens = sequence_length(length + MEGATRON_LENGTH * k),
                          at = (int64_t)tokens_little(place + MEGATRON_PLACE * k, 8);
            if (tokens < 0 || at < 0 || at % f->id_bytes || (next >= 0 && at != next) ||
                at / f->id_bytes > f->tokens - tokens)
                return tokens_wrong(why,
                                    "%s: sequence %lld has %lld ids from byte %lld of %s, and %s "
                                    "(byte %lld of the index): the index is damaged or its "
                                    "sequences are not in order; write both again",
                                    f->index_path, (long long)i, (long long)tokens, (long long)at,
                                    f->path,
                                    next >= 0 && at != next ? "the one before it ends elsewhere"
                                                            : "the file has no such place",
                                    (long long)(places + MEGATRON_PLACE * i));
            next = at + tokens * f->id_bytes;
        }
    }
    if (f->documents < 0) return true;
    const int64_t each = f->documents / parts + 1, first = each * part,
                  behind = first + each < f->documents + 1 ? first + each : f->documents + 1;
    return check_documents(f, first, behind, buffer, why);
}

/* ── documents ───────────────────────────────────────────────────────────────── */

/* Where document `i` begins, in tokens; i may be the number of documents. */
static bool document_begin(const struct tokens_file *f, int64_t i, int64_t *token,
                           char why[TOKENS_WHY])
{
    unsigned char word[MEGATRON_PLACE];
    const int64_t places = MEGATRON_HEADER + MEGATRON_LENGTH * f->sequences,
                  documents = places + MEGATRON_PLACE * f->sequences;
    if (!tokens_bytes(f->index_fd, f->index_path, documents + MEGATRON_PLACE * i, word, sizeof word,
                      why))
        return false;
    const int64_t sequence = (int64_t)tokens_little(word, MEGATRON_PLACE);
    *token = f->tokens;
    if (sequence >= f->sequences) return true;
    if (sequence < 0 || !tokens_bytes(f->index_fd, f->index_path,
                                      places + MEGATRON_PLACE * sequence, word, sizeof word, why))
        return false;
    *token = (int64_t)tokens_little(word, MEGATRON_PLACE) / f->id_bytes;
    return true;
}

bool tokens_megatron_end(const struct tokens_file *f, int64_t at, int64_t *end,
                         char why[TOKENS_WHY])
{
    int64_t low = 0, high = f->documents, begin = f->tokens;
    while (high - low > 1) { /* the last document that begins at or before `at` */
        const int64_t middle = low + (high - low) / 2;
        if (!document_begin(f, middle, &begin, why)) return false;
        *(begin <= at ? &low : &high) = middle;
    }
    if (!document_begin(f, high, &begin, why)) return false;
    *end = begin > at ? begin : f->tokens;
    return true;
}
