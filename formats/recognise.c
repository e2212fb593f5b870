/* The signs by which a file without a header is known. Marks that formats begin with are sure; text
 * is sure when there is enough of it; a width is judged by where the zeros are, and refused only
 * when it cannot be chance. What is not recognised is taken as the plan says, or as ids of two
 * bytes: files of raw ids have no mark. */
#include "formats/recognise.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

static const char *const format_names[] = {[1] = "bytes", [2] = "uint16", [4] = "uint32"};

static uint32_t little(const unsigned char *p, int width)
{
    uint32_t x = 0;
    for (int k = width; k-- > 0;) x = x << 8 | p[k];
    return x;
}

/* ── marks ───────────────────────────────────────────────────────────────────── */

static const struct {
    size_t at, n;
    const char *bytes, *what;
} marks[] = {
    {0, 2, "\x1f\x8b", "compressed by gzip; decompress it"},
    {0, 4, "\x28\xb5\x2f\xfd", "compressed by zstd; decompress it"},
    {0, 6,
     "\xfd"
     "7zXZ\0",
     "compressed by xz; decompress it"},
    {0, 3, "BZh", "compressed by bzip2; decompress it"},
    {0, 4, "PK\3\4", "a zip archive, as .npz and .pt are; write its ids alone"},
    {0, 4, "PAR1", "a Parquet table; write its ids alone"},
    {0, 6, "ARROW1", "an Arrow table; write its ids alone"},
    {0, 4, "FEA1", "a Feather table; write its ids alone"},
    {0, 4, "Obj\1", "an Avro file; write its ids alone"},
    {0, 4, "\x04\x22\x4d\x18", "compressed by lz4; decompress it"},
    {0, 16, "SQLite format 3\0", "an SQLite database; write its ids alone"},
    {0, 8, "TNTIDX\0\0", "fairseq's index; the .bin file beside it holds the ids, without header"},
    {0, 8, "\x89HDF\r\n\x1a\n", "an HDF5 file; write its ids alone"},
    {257, 5, "ustar", "a tar archive; unpack it"},
    {0, 9, "MMIDIDX\0\0",
     "Megatron's index, and the .bin with its ids is not beside it; copy both"},
};

/* Chunks of litdata: a count, then offsets that rise to the end of the file. */
static bool is_litdata(const unsigned char *head, size_t n, int64_t file_bytes)
{
    uint32_t items = n >= 8 ? little(head, 4) : 0;
    if (!items || items > (1u << 24) || little(head + 4, 4) != 4 * (items + 2)) return false;
    uint32_t last = little(head + 4, 4);
    for (size_t i = 8; i + 4 <= n && i < 4 * ((size_t)items + 2); i += 4) {
        uint32_t next = little(head + i, 4);
        if (next < last || next > file_bytes) return false;
        last = next;
    }
    return true;
}

/* What the datasets library writes: an unused length, that of the schema, a small offset in it. */
static bool is_arrow_stream(const unsigned char *head, size_t n, int64_t file_bytes)
{
    if (n < 12 || little(head, 4) != UINT32_MAX) return false;
    const uint32_t schema = little(head + 4, 4), root = little(head + 8, 4);
    return schema >= 16 && schema % 8 == 0 && schema < (1u << 24) && schema < file_bytes &&
           root >= 4 && root < 256 && root % 4 == 0;
}

/* A shard of streaming: how many samples, where each begins, then its columns as JSON. */
static bool is_mds(const unsigned char *head, size_t n)
{
    static const char columns[] = "{\"column_";
    const uint64_t items = n >= 4 ? little(head, 4) : 0, at = 4 * (items + 2);
    return items > 0 && at + sizeof columns - 1 <= n &&
           !memcmp(head + at, columns, sizeof columns - 1);
}

/* UTF-16: its mark, then mostly letters of one byte. */
static bool is_utf16(const unsigned char *head, size_t n)
{
    size_t letters = 0, units = n / 2;
    if (n < 64 || head[0] != 0xFF || head[1] != 0xFE) return false;
    for (size_t i = 1; i < units; i++) {
        const uint32_t u = little(head + 2 * i, 2);
        letters += (u >= 0x20 && u < 0x7F) || u == '\n' || u == '\r' || u == '\t';
    }
    return letters > units / 2;
}

bool recognise_marked(const unsigned char *head, size_t n, int64_t file_bytes, char *why,
                      size_t room)
{
    for (size_t i = 0; i < sizeof marks / sizeof *marks; i++)
        if (n >= marks[i].at + marks[i].n &&
            !memcmp(head + marks[i].at, marks[i].bytes, marks[i].n))
            return snprintf(why, room, "this is %s", marks[i].what) > 0;
    if (n >= 24 && !memcmp(head, "LITPKDS", 7)) {
        int width = head[15] == 8   ? 2
                    : head[15] == 1 ? 1
                                    : 4; /* its codes: 1 uint8, 4 int32, 8 uint16 */
        snprintf(why, room,
                 "this is a packed file of lit-gpt, and its header of 24 bytes would be read as "
                 "tokens; cut it off, tail -c +25 FILE >tokens.bin, with format = %s",
                 format_names[width]);
        return true;
    }
    if (is_arrow_stream(head, n, file_bytes))
        return snprintf(why, room,
                        "this is an Arrow stream, as the datasets library writes; write its ids "
                        "alone") > 0;
    if (is_mds(head, n))
        return snprintf(why, room, "this is a shard of MosaicML streaming; write its ids alone") >
               0;
    if (is_utf16(head, n))
        return snprintf(why, room,
                        "this is text in UTF-16; turn it into ids, or into UTF-8 for format = "
                        "bytes") > 0;
    if (is_litdata(head, n, file_bytes))
        return snprintf(why, room,
                        "this is a chunk of litdata, with a table of offsets before its tokens; "
                        "write the ids alone") > 0;
    uint64_t json = 0;
    for (int k = 8; n >= 10 && k-- > 0;) json = json << 8 | head[k];
    if (n >= 10 && json > 1 && json < (1u << 27) && head[8] == '{' && head[9] == '"')
        return snprintf(why, room, "this is a safetensors file: tensors, not tokens") > 0;
    return false;
}

/* ── text ────────────────────────────────────────────────────────────────────── */

/* Whether it reads as UTF-8 without control characters, as ids in binary hardly ever do; or, as
 * they never do, nearly all of it is printed ASCII: text of another coding, a log with colours. */
static bool is_text_of(const unsigned char *head, size_t n, size_t least)
{
    size_t odd = 0, plain = 0;
    for (size_t i = 0; i < n; i++) {
        if (head[i] == 0) return false;
        plain += (head[i] >= 0x20 && head[i] < 0x7F) || strchr("\t\n\r\f", head[i]);
        if ((head[i] < 0x20 && !strchr("\t\n\r\f", head[i])) || head[i] == 0x7F) odd++;
        if (head[i] < 0x80) continue;
        int more = head[i] >= 0xF0 && head[i] < 0xF5   ? 3
                   : head[i] >= 0xE0 && head[i] < 0xF0 ? 2
                   : head[i] >= 0xC2 && head[i] < 0xE0 ? 1
                                                       : 0;
        if (!more) odd++;
        for (int k = 1; k <= more && i + 1 < n; k++) {
            if ((head[i + 1] & 0xC0) != 0x80) {
                odd++;
                break;
            }
            i++;
        }
    }
    return n >= least && (odd <= n / 200 || (n >= 64 && plain >= n - n / 8));
}

static bool is_text(const unsigned char *head, size_t n) { return is_text_of(head, n, 64); }

/* Behind a mark of UTF-8 and empty lines, as the reader has it. */
static bool is_json_lines(const unsigned char *head, size_t n)
{
    const size_t mark = n > 3 && memcmp(head, "\xEF\xBB\xBF", 3) == 0 ? 3 : 0;
    for (head += mark, n -= mark; n > 0 && strchr(" \t\r\n", head[0]) && head[0]; n--) head++;
    return n > 2 && head[0] == '{' && memchr(head, '"', n < 64 ? n : 64) && is_text_of(head, n, 8);
}

/* ── widths ──────────────────────────────────────────────────────────────────── */

enum { FEW = 128 /* ids below which nothing is said of a width */ };

/* Ids of 4 bytes, read as two of 2: the upper ones are hardly ever more than 3. */
static bool is_wider_than_2(const unsigned char *head, size_t n)
{
    size_t ids = n / 4, upper = 0, none = 0, lower = 0;
    for (size_t i = 0; i < ids; i++) {
        uint32_t high = little(head + 4 * i + 2, 2);
        if (high > 8) return false;
        upper += high == 0;
        none += high <= 3;
        lower += little(head + 4 * i, 2) != 0;
    }
    return ids >= FEW && none == ids && upper > ids / 8 && lower > ids - ids / 8;
}

/* Ids of 8 bytes, as NumPy and PyTorch make them unless told otherwise: the upper half is 0, the
 * lower hardly ever. */
static bool is_8_bytes(const unsigned char *head, size_t n)
{
    size_t ids = n / 8, lower = 0;
    for (size_t i = 0; i < ids; i++) {
        const uint32_t id = little(head + 8 * i, 4);
        if (little(head + 8 * i + 4, 4) || id >= 1u << 24) return false;
        lower += id != 0;
    }
    return ids >= FEW && lower > ids - ids / 8;
}

/* Ids of 2 bytes, read as one of 4: most are beyond the vocabulary, their halves are not. */
static bool is_narrower_than_4(const unsigned char *head, size_t n, int64_t vocabulary)
{
    size_t ids = n / 4, beyond = 0;
    for (size_t i = 0; i < ids; i++) {
        beyond += little(head + 4 * i, 4) >= vocabulary;
        if (little(head + 4 * i, 2) >= vocabulary || little(head + 4 * i + 2, 2) >= vocabulary)
            return false;
    }
    return ids >= FEW && beyond > ids / 2;
}

/* Ids of 4 bytes, read as bytes: every fourth is 0. */
static bool is_wider_than_1(const unsigned char *head, size_t n)
{
    size_t ids = n / 4, lower = 0;
    for (size_t i = 0; i < ids; i++) {
        if (head[4 * i + 3] || head[4 * i + 2] > 3) return false;
        lower += head[4 * i] != 0;
    }
    return ids >= FEW && lower > ids / 2;
}

/* Ids of 2 bytes, read as bytes: the upper ones are small or often 0, the lower ones are not. */
static bool may_be_2(const unsigned char *head, size_t n)
{
    size_t ids = n / 2, zeros[2] = {0}, large[2] = {0};
    for (size_t i = 0; i < 2 * ids; i++) {
        zeros[i % 2] += head[i] == 0;
        large[i % 2] += head[i] >= 0xE0;
    }
    return ids >= FEW &&
           ((zeros[1] > ids / 8 && zeros[0] < ids / 32) || (large[0] > ids / 16 && large[1] == 0));
}

/* ── a plan that does not say ────────────────────────────────────────────────── */

/* A vocabulary of bytes and some more; 0: not known, which may be one. */
static bool is_of_bytes(int64_t vocabulary) { return vocabulary <= 1024; }

bool recognise_json_lines(const unsigned char *head, size_t n, int64_t vocabulary)
{
    return is_of_bytes(vocabulary) && is_json_lines(head, n);
}

int recognise_width(const unsigned char *head, size_t n, int64_t vocabulary)
{
    if (is_of_bytes(vocabulary) && is_text(head, n)) return 1;
    if (is_wider_than_2(head, n)) return 4;
    if (vocabulary > 65536) return is_narrower_than_4(head, n, vocabulary) ? 2 : 4;
    if (vocabulary == 0 || vocabulary > 256) return 2;
    size_t zeros = 0; /* ids that a byte holds, in two */
    for (size_t i = 1; i < n; i += 2) zeros += head[i] == 0;
    return 2 * zeros >= n / 2 ? 2 : 1;
}

enum recognised recognise(const unsigned char *head, size_t n, int64_t file_bytes, int width,
                          int64_t vocabulary, char *why, size_t room)
{
    why[0] = 0;
    if (recognise_marked(head, n, file_bytes, why, room)) return RECOGNISED_WRONG;
    if (width > 1 && is_text(head, n)) {
        snprintf(why, room, "this is %s, not ids of %d bytes; %s",
                 is_json_lines(head, n) ? "JSON lines" : "text", width,
                 is_json_lines(head, n)
                     ? "format = jsonl trains on the bytes of a field, or turn it into ids"
                     : "format = bytes trains on its bytes, or turn it into ids");
        return RECOGNISED_WRONG;
    }
    if (width == 1 && is_json_lines(head, n)) {
        snprintf(
            why, room,
            "this is JSON lines: its braces and keys are trained on too; format = jsonl trains on "
            "the bytes of a field");
        return RECOGNISED_DOUBT;
    }
    if (is_8_bytes(head, n)) {
        snprintf(why, room,
                 "these are ids of 8 bytes, and the plan reads %s; write them with 4, "
                 "ids.astype(\"<u4\").tofile(\"tokens.bin\"), with format = uint32",
                 format_names[width]);
        return RECOGNISED_WRONG;
    }
    int other = width == 2 && is_wider_than_2(head, n)                                ? 4
                : width == 1 && is_wider_than_1(head, n)                              ? 4
                : width == 4 && vocabulary && is_narrower_than_4(head, n, vocabulary) ? 2
                : width == 1 && !is_text(head, n) && may_be_2(head, n)                ? -2
                                                                                      : 0;
    if (!other) return RECOGNISED_FINE;
    int bytes = other < 0 ? -other : other;
    snprintf(why, room, "these %s ids of %d bytes, and the plan reads %s; format = %s",
             other < 0 ? "may be" : "are", bytes, format_names[width], format_names[bytes]);
    return other < 0 ? RECOGNISED_DOUBT : RECOGNISED_WRONG;
}
