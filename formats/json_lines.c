/* JSON lines: each line is an object, and the bytes of one of its strings are the tokens, line
 * after line with nothing between them. Escapes make the number of bytes differ from the number of
 * tokens, so the file is read once when it is opened. That finds every line that is wrong, counts,
 * and remembers a place every few thousand tokens. A later read begins at the nearest of them. */
#define _GNU_SOURCE
#include "formats/tokens_inside.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { APART = 1 << 12 /* tokens between two places */ };

/* A byte inside of a string, before which no character is half read. */
struct place {
    int64_t byte, token;
};
struct json_lines {
    char *field;
    struct place *place;
    size_t places, room;
    int64_t *end; /* of each line, in tokens */
    size_t ends, end_room;
};

enum { END = -1, BROKEN = -2 /* the file cannot be read */ };
struct scan {
    const struct tokens_file *file;
    unsigned char *buffer;
    int64_t base, line; /* of the buffer in the file; line: from 1 */
    size_t n, i;
};

static int peek(struct scan *s)
{
    while (s->i == s->n) {
        const ssize_t got =
            pread(s->file->fd, s->buffer, TOKENS_BUFFER, (off_t)(s->base + (int64_t)s->n));
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0) return got < 0 ? BROKEN : END;
        s->base += (int64_t)s->n;
        s->n = (size_t)got;
        s->i = 0;
    }
    return s->buffer[s->i];
}

static int next(struct scan *s)
{
    const int c = peek(s);
    if (c >= 0) s->i++;
    return c;
}

static int64_t here(const struct scan *s) { return s->base + (int64_t)s->i; }

static void skip_blanks(struct scan *s)
{
    while (peek(s) == ' ' || peek(s) == '\t' || peek(s) == '\r') s->i++;
}

static bool bad_line(const struct scan *s, const char *what, char *why)
{
    return tokens_wrong(why, "%s: line %lld (byte %lld): %s", s->file->path, (long long)s->line,
                        (long long)here(s), what);
}

/* ── strings ─────────────────────────────────────────────────────────────────── */

/* Four hexadecimal digits; -1: others. */
static int hexadecimal(struct scan *s)
{
    int x = 0;
    for (int i = 0; i < 4; i++) {
        const int c = next(s), low = c | 0x20;
        if (c >= '0' && c <= '9')
            x = 16 * x + c - '0';
        else if (low >= 'a' && low <= 'f')
            x = 16 * x + low - 'a' + 10;
        else
            return -1;
    }
    return x;
}

static int as_utf8(int x, unsigned char to[4])
{
    if (x < 0x80) {
        to[0] = (unsigned char)x;
        return 1;
    }
    const int n = x < 0x800 ? 2 : x < 0x10000 ? 3 : 4;
    for (int i = n - 1; i > 0; i--, x >>= 6) to[i] = (unsigned char)(0x80 | (x & 0x3F));
    to[0] = (unsigned char)((0xF00 >> n & 0xFF) | x);
    return n;
}

/* The next character of a string as its bytes; 0: the string ends; -1: it is wrong. Half of a pair
 * of \u is U+FFFD, as no text has it. */
static int character(struct scan *s, unsigned char to[4], char *why)
{
    static const char short_form[] = "\"\\/bfnrt", meaning[] = "\"\\/\b\f\n\r\t";
    const int c = next(s);
    if (c == '"') return 0;
    if (c == BROKEN) return tokens_wrong(why, "%s: %s", s->file->path, strerror(errno)) - 1;
    if (c == END || c == '\n') {
        if (c == '\n') s->i--;
        return bad_line(s,
                        "it ends within a string: every object is one line, and the last line "
                        "is whole",
                        why) -
               1;
    }
    if (c != '\\') {
        to[0] = (unsigned char)c;
        return 1;
    }
    const int kind = next(s);
    const char *known = kind > 0 ? strchr(short_form, kind) : NULL;
    if (known) {
        to[0] = (unsigned char)meaning[known - short_form];
        return 1;
    }
    int x = kind == 'u' ? hexadecimal(s) : -1;
    if (x < 0)
        return bad_line(s, "an escape that JSON does not have; write the file again", why) - 1;
    if (x >= 0xD800 && x < 0xDC00 && peek(s) == '\\') {
        s->i++;
        const int low = next(s) == 'u' ? hexadecimal(s) : -1;
        if (low < 0) return bad_line(s, "half of a pair of \\u; write the file again", why) - 1;
        x = low >= 0xDC00 && low < 0xE000 ? 0x10000 + ((x - 0xD800) << 10) + (low - 0xDC00)
                                          : 0xFFFD;
    }
    return as_utf8(x >= 0xD800 && x < 0xE000 ? 0xFFFD : x, to);
}

/* A string behind its first quote, all of it; *same: whether it is `text`. */
static bool whole_string(struct scan *s, const char *text, bool *same, char *why)
{
    size_t at = 0;
    const size_t length = text ? strlen(text) : 0;
    bool equal = text != NULL;
    for (;;) {
        unsigned char c[4];
        const int n = character(s, c, why);
        if (n < 0) return false;
        if (n == 0) break;
        equal = equal && at + (size_t)n <= length && !memcmp(text + at, c, (size_t)n);
        at += (size_t)n;
    }
    *same = equal && at == length;
    return true;
}

/* ── objects ─────────────────────────────────────────────────────────────────── */

/* A value that nobody asked for: its brackets must close. */
static bool skip_value(struct scan *s, char *why)
{
    int depth = 0;
    bool same;
    for (;;) {
        const int c = peek(s);
        if (c == END || c == '\n' || c == BROKEN)
            return bad_line(s,
                            "no whole JSON object: every object is one line, and the last line "
                            "is whole",
                            why);
        if (depth == 0 && (c == ',' || c == '}')) return true;
        s->i++;
        if (c == '"' && !whole_string(s, NULL, &same, why)) return false;
        if (c == '{' || c == '[') depth++;
        if ((c == '}' || c == ']') && --depth < 0)
            return bad_line(s, "a bracket closes that was not open; write the file again", why);
    }
}

/* Behind the quote that opens the field's string. *found false: the file ends, blank lines left
 * out. */
static bool find_text(struct scan *s, const char *field, bool *found, char *why)
{
    char text[256];
    *found = false;
    for (skip_blanks(s); peek(s) == '\n'; skip_blanks(s)) {
        s->i++;
        s->line++;
    }
    const int first = next(s);
    if (first == END) return true;
    if (first == BROKEN) return tokens_wrong(why, "%s: %s", s->file->path, strerror(errno));
    if (first != '{')
        return bad_line(s, "it does not begin with '{': every line is a JSON object", why);
    for (;;) {
        bool same;
        skip_blanks(s);
        if (peek(s) == '}') {
            snprintf(text, sizeof text, "the object has no \"%.100s\"; data.field names another",
                     field);
            return bad_line(s, text, why);
        }
        if (peek(s) == '\n' || peek(s) == END)
            return bad_line(s,
                            "no whole JSON object: every object is one line, and the last line is "
                            "whole",
                            why);
        if (next(s) != '"')
            return bad_line(s, "no JSON object: a name in quotes is wanted here", why);
        if (!whole_string(s, field, &same, why)) return false;
        skip_blanks(s);
        if (next(s) != ':') return bad_line(s, "no JSON object: ':' is wanted here", why);
        skip_blanks(s);
        if (same) {
            *found = next(s) == '"';
            snprintf(text, sizeof text, "\"%.100s\" is no string; data.field names another", field);
            return *found || bad_line(s, text, why);
        }
        if (!skip_value(s, why)) return false;
        if (peek(s) == ',') s->i++;
    }
}

/* Behind the field's string: the rest of the object, in which the field does not come again, and of
 * the line. What stood behind it there would be lost. */
static bool end_line(struct scan *s, const char *field, char *why)
{
    char text[256];
    bool same;
    skip_blanks(s);
    int c = next(s);
    for (; c == ','; c = next(s)) {
        skip_blanks(s);
        if (next(s) != '"')
            return bad_line(s, "no JSON object: a name in quotes is wanted here", why);
        if (!whole_string(s, field, &same, why)) return false;
        skip_blanks(s);
        if (next(s) != ':') return bad_line(s, "no JSON object: ':' is wanted here", why);
        snprintf(text, sizeof text, "the object has \"%.100s\" twice; write the file again", field);
        if (same) return bad_line(s, text, why);
        skip_blanks(s);
        if (!skip_value(s, why)) return false;
    }
    if (c == BROKEN) return tokens_wrong(why, "%s: %s", s->file->path, strerror(errno));
    if (c != '}')
        return bad_line(s,
                        "the object does not end: every object is one line, and the last line "
                        "is whole",
                        why);
    skip_blanks(s);
    c = next(s);
    if (c == BROKEN) return tokens_wrong(why, "%s: %s", s->file->path, strerror(errno));
    if (c != '\n' && c != END)
        return bad_line(s, "the line goes on behind its object: every object is one line", why);
    s->line++;
    return true;
}

/* ── the file ────────────────────────────────────────────────────────────────── */

static bool remember(struct json_lines *l, int64_t byte, int64_t token)
{
    if (l->places == l->room) {
        const size_t more = l->room ? 2 * l->room : 1024;
        struct place *p = realloc(l->place, more * sizeof *p);
        if (!p) return false;
        l->place = p;
        l->room = more;
    }
    l->place[l->places++] = (struct place){byte, token};
    return true;
}

static bool remember_end(struct json_lines *l, int64_t token)
{
    if (l->ends == l->end_room) {
        const size_t more = l->end_room ? 2 * l->end_room : 1024;
        int64_t *e = realloc(l->end, more * sizeof *e);
        if (!e) return false;
        l->end = e;
        l->end_room = more;
    }
    l->end[l->ends++] = token;
    return true;
}

static bool index_lines(struct tokens_file *f, struct json_lines *l, unsigned char *buffer,
                        char why[TOKENS_WHY])
{
    struct scan s = {.file = f, .buffer = buffer, .line = 1};
    int64_t last = -APART;
    if (peek(&s) == 0xEF) s.i += 3; /* a mark of UTF-8, which some editors write */
    for (;;) {
        bool found;
        if (!find_text(&s, l->field, &found, why)) return false;
        if (!found) return true;
        for (;;) {
            unsigned char c[4];
            if (f->tokens >= last + APART) {
                if (!remember(l, here(&s), f->tokens))
                    return tokens_wrong(why, "%s: %s", f->path, strerror(ENOMEM));
                last = f->tokens;
            }
            const int n = character(&s, c, why);
            if (n < 0) return false;
            if (n == 0) break;
            f->tokens += n;
        }
        if (!end_line(&s, l->field, why)) return false;
        if (!remember_end(l, f->tokens))
            return tokens_wrong(why, "%s: %s", f->path, strerror(ENOMEM));
        f->documents++;
    }
}

bool json_lines_open(struct tokens_file *f, const struct tokens_wish *wish, char why[TOKENS_WHY])
{
    f->layout = LAYOUT_JSON_LINES;
    f->id_bytes = 1;
    f->is_text = true;
    f->tokens = 0;
    if (wish->only_look) return true;
    struct json_lines *l = calloc(1, sizeof *l);
    unsigned char *buffer = malloc(TOKENS_BUFFER);
    f->documents = 0;
    f->lines = l;
    if (l) l->field = strdup(wish->field ? wish->field : "text");
    const bool fine = l && buffer && l->field
                          ? index_lines(f, l, buffer, why)
                          : tokens_wrong(why, "%s: %s", f->path, strerror(ENOMEM));
    free(buffer);
    return fine;
}

void json_lines_close(struct json_lines *l)
{
    if (!l) return;
    free(l->field);
    free(l->place);
    free(l->end);
    free(l);
}

int64_t json_lines_end(const struct json_lines *l, int64_t at)
{
    size_t low = 0, high = l->ends - 1;
    while (low < high) { /* the first line that ends above `at` */
        const size_t middle = (low + high) / 2;
        if (l->end[middle] > at)
            high = middle;
        else
            low = middle + 1;
    }
    return l->end[low];
}

bool json_lines_read(const struct tokens_file *f, int64_t at, int64_t n,
                     unsigned char buffer[TOKENS_BUFFER], int32_t *to, char why[TOKENS_WHY])
{
    const struct json_lines *l = f->lines;
    size_t low = 0, high = l->places;
    if (n <= 0) return true;
    while (high - low > 1) { /* the last place at or before `at` */
        const size_t middle = (low + high) / 2;
        *(l->place[middle].token <= at ? &low : &high) = middle;
    }
    struct scan s = {.file = f, .buffer = buffer, .base = l->place[low].byte, .line = 1};
    int64_t token = l->place[low].token;
    for (;;) {
        unsigned char c[4];
        const int bytes = character(&s, c, why);
        if (bytes < 0) return false;
        for (int i = 0; i < bytes; i++, token++)
            if (token >= at && token < at + n) to[token - at] = c[i];
        if (token >= at + n) return true;
        bool found;
        if (bytes > 0) continue;
        if (!end_line(&s, l->field, why) || !find_text(&s, l->field, &found, why)) return false;
        if (!found)
            return tokens_wrong(why, "%s: the file has become shorter since the start", f->path);
    }
}
