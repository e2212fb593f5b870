/* Reads the words of a dump: names, quoted text, numbers, key=value, places. */
#include "ir/ir_reader.h"

#include "base/escape.h"

#include <stdlib.h>
#include <string.h>

void read_fail(struct reader *r, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    r->why = text_format("line %d: %s", r->line, text_vformat(format, args));
    va_end(args);
    longjmp(r->out, 1);
}

/* ── the words of a line ─────────────────────────────────────────────────────── */
void read_blanks(struct reader *r)
{
    while (r->at < r->end && *r->at == ' ') r->at++;
}

bool read_see(struct reader *r, const char *text)
{
    read_blanks(r);
    size_t n = strlen(text);
    if ((size_t)(r->end - r->at) < n || memcmp(r->at, text, n)) return false;
    r->at += n;
    return true;
}

void read_need(struct reader *r, const char *text)
{
    if (!read_see(r, text)) read_fail(r, "'%s' expected", text);
}

static bool name_char(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           c == '.';
}

const char *read_name(struct reader *r)
{
    read_blanks(r);
    const char *from = r->at;
    while (r->at < r->end && name_char(*r->at)) r->at++;
    if (from == r->at) read_fail(r, "a name expected");
    return intern_bytes(from, (size_t)(r->at - from));
}

const char *read_quoted(struct reader *r)
{
    read_need(r, "\"");
    const char *from = r->at;
    while (r->at < r->end && *r->at != '"' && *r->at != '\n') r->at++;
    if (r->at == r->end || *r->at != '"') read_fail(r, "a quote is not closed");
    return intern(unescape_word(from, (size_t)(r->at++ - from)));
}

bool read_at_line_end(struct reader *r)
{
    read_blanks(r);
    return r->at == r->end || *r->at == '\n';
}

void read_line_end(struct reader *r)
{
    if (!read_at_line_end(r)) read_fail(r, "nothing more expected on this line");
    if (r->at < r->end) r->at++;
    r->line++;
}

/* A number's text, whole or real. */
const char *read_number_text(struct reader *r, bool *whole)
{
    read_blanks(r);
    const char *from = r->at;
    while (r->at < r->end && (name_char(*r->at) || *r->at == '-' || *r->at == '+')) {
        if (*r->at == '.' && r->at + 1 < r->end && r->at[1] == '.') break; /* 0..4 */
        r->at++;
    }
    if (from == r->at) read_fail(r, "a number expected");
    const char *text = text_format("%.*s", (int)(r->at - from), from);
    *whole = strspn(text, "-0123456789") == strlen(text);
    return text;
}

int64_t read_whole(struct reader *r)
{
    bool is;
    const char *text = read_number_text(r, &is);
    if (!is) read_fail(r, "'%s' is not a whole number", text);
    return strtoll(text, NULL, 10);
}

double read_real(struct reader *r)
{
    bool is;
    const char *text = read_number_text(r, &is);
    char *end;
    double x = strtod(text, &end);
    if (*end) read_fail(r, "'%s' is not a number", text);
    return x;
}

int read_choice(struct reader *r, const char *const *names, int n, const char *word)
{
    for (int i = 0; i < n; i++)
        if (!strcmp(names[i], word)) return i;
    read_fail(r, "'%s' is not a word that fits here", word);
}

void read_key(struct reader *r, const char *text)
{
    read_need(r, text);
    read_need(r, "=");
}

int64_t read_key_whole(struct reader *r, const char *text)
{
    return read_key(r, text), read_whole(r);
}
double read_key_real(struct reader *r, const char *text) { return read_key(r, text), read_real(r); }
const char *read_key_word(struct reader *r, const char *text)
{
    return read_key(r, text), read_quoted(r);
}

void read_place(struct reader *r, const char **file, int *line)
{
    *file = NULL, *line = 0;
    if (!read_see(r, "@")) return;
    const char *from = r->at;
    while (r->at < r->end && *r->at != '\n') r->at++;
    const char *colon = r->at;
    while (colon > from && *colon != ':') colon--;
    if (colon == from) read_fail(r, "a place is FILE:LINE");
    *file = intern(unescape_word(from, (size_t)(colon - from)));
    *line = (int)strtol(colon + 1, NULL, 10);
}
