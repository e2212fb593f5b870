/* Text that the language does not have, and what it means: strings in other quotes or without an
 * end, comments of other languages, powers, grouped numbers, typographic signs. The scanner asks
 * here, reports it once, and continues with the meaning, so a curly quote gives one message and not
 * three. */
#include "text/lex.h"
#include "plan.tab.h"

#include <stdlib.h>
#include <string.h>

/* ── Strings, comments, numbers as they were meant ───────────────────────────── */

/* The quote that begins here: how long it is, and whether it ends with the same one. */
static int quote_length(const char *bytes, int n)
{
    static const char *const quotes[] = {"\"", "'", "`", "“", "”", "„",
                                         "‟",  "‘", "’", "‚", "«", "»"};
    for (size_t i = 0; i < COUNT_OF(quotes); i++) {
        int length = (int)strlen(quotes[i]);
        if (length <= n && !memcmp(bytes, quotes[i], (size_t)length)) return length;
    }
    return 0;
}

/* To the closing quote; without one, to the first ';', or to the brace or comma that ends the line,
 * or to its end. */
int lex_string_length(const char *bytes, int n)
{
    int from = quote_length(bytes, n), at = from;
    bool plain = bytes[0] == '"' || bytes[0] == '\'' || bytes[0] == '`';
    while (at < n && bytes[at] != '\n') {
        if (plain && bytes[at] == bytes[0]) return at + 1;
        int length = quote_length(bytes + at, n - at);
        if (!plain && length && (bytes[at] == '"' || length > 1)) return at + length;
        at += bytes[0] == '"' && bytes[at] == '\\' && at + 1 < n && bytes[at + 1] != '\n' ? 2 : 1;
    }
    int end = at > n ? n : at;
    for (int i = from; i < end; i++)
        if (bytes[i] == ';') end = i;
    while (end > from && strchr(" \t\r{},", bytes[end - 1])) end--;
    return end > from ? end : at > n ? n : at;
}

int lex_comment_length(const char *bytes, int n)
{
    for (int i = 2; i + 1 < n; i++)
        if (bytes[i] == '*' && bytes[i + 1] == '/') return i + 2;
    int end = 0;
    while (end < n && bytes[end] != '\n') end++;
    return end;
}

const char *lex_string_meant(const char *written)
{
    int n = (int)strlen(written), from = quote_length(written, n), to = n;
    for (int length = 1; from && length <= 3 && from + length <= n; length++)
        if (quote_length(written + n - length, length) == length) to = n - length;
    struct text t = {0};
    text_add(&t, "\"");
    for (int i = from; i < to; i++)
        text_add(&t, written[i] == '"' && written[0] != '"' ? "\\%c" : "%c", written[i]);
    text_add(&t, "\"");
    return t.bytes;
}

/* 2^12 in digits; NULL when that is too much. */
static const char *power(const char *base, const char *exponent)
{
    int64_t b = strtoll(base, NULL, 10), n = strtoll(exponent, NULL, 10), x = 1;
    if (n > 63) return NULL;
    for (; n > 0; n--)
        if (__builtin_mul_overflow(x, b, &x)) return NULL;
    return text_format("%lld", (long long)x);
}

const char *lex_number_meant(const char *written)
{
    struct text plain = {0};
    const char *hat = strchr(written, '^'), *stars = strstr(written, "**"),
               *times = strchr(written, '*');
    if (!hat && !stars) {
        if (written[0] == '.') text_add(&plain, "0");
        for (const char *p = written; *p; p++)
            if (*p != ',') text_add(&plain, "%c", *p);
        return plain.bytes;
    }
    const char *exponent = hat ? hat + 1 : stars + 2,
               *ten = times && times != stars ? times : strpbrk(written, "eE");
    while (*exponent == ' ') exponent++;
    if (!ten) {
        const char *digits = power(written, exponent);
        return digits ? digits : "0";
    }
    for (const char *p = written; p < ten; p++)
        if (*p != ' ') text_add(&plain, "%c", *p);
    text_add(&plain, "e%s", exponent);
    return plain.bytes;
}

/* ── Signs ───────────────────────────────────────────────────────────────────── */

int lex_sign(struct lex *lx, struct span at)
{
    static const struct {
        const char *sign;
        int kind;
        const char *message, *help;
    } signs[] = {
        {"&", AND, "there is no operator '&'", "write 'and'"},
        {"^", 0, "there is no operator '^'", "a power is written out: 4096, 1e-4, or x * x"},
        {"\\", 0, "'\\' joins no lines",
         "an entry goes on after an operator or a comma, and inside ( ) or [ ]"},
        {"≤", LE, "there is no operator '≤'", "write '<='"},
        {"≥", GE, "there is no operator '≥'", "write '>='"},
        {"≠", NE, "there is no operator '≠'", "write '!='"},
        {"×", STAR, "there is no operator '×'", "write '*'"},
        {"·", STAR, "there is no operator '·'", "write '*'"},
        {"÷", SLASH, "there is no operator '÷'", "write '/'"},
        {"−", MINUS, "this is a minus of typesetting, U+2212", "write '-'"},
        {"–", MINUS, "this is a dash, U+2013", "write '-'"},
        {"—", MINUS, "this is a dash, U+2014", "write '-', or '#' before a remark"},
        {"…", RANGE, "this is an ellipsis, U+2026", "a range is written 1..4"},
        {"@", STAR, "there is no operator '@'", "a product with a weight is linear(x, W)"},
        {"→", ASSIGN, "there is no operator '→'", "an entry is written with '='"},
    };
    static const struct {
        const char *sign, *message;
    } blanks[] = {
        {"\xc2\xa0", "this is a no-break space, U+00A0"},
        {"\xe2\x80\xaf", "this is a no-break space, U+202F"},
        {"\xe3\x80\x80", "this is a wide space, U+3000"},
        {"\xe2\x80\x8b", "this is a space of no width, U+200B"},
        {"\xef\xbb\xbf", "this is a byte order mark, U+FEFF"},
    };
    const char *text = text_format("%.*s", at.to - at.from, lx->bytes + at.from);
    for (size_t i = 0; i < COUNT_OF(blanks); i++)
        if (!strcmp(blanks[i].sign, text)) {
            lex_slip(lx, SLIP_BLANK, at, blanks[i].message, "write a blank");
            return 0;
        }
    for (size_t i = 0; i < COUNT_OF(signs); i++)
        if (!strcmp(signs[i].sign, text)) {
            lex_complain(lx, at, signs[i].message, signs[i].help);
            lx->torn |= !signs[i].kind;
            return signs[i].kind;
        }
    lex_complain(
        lx, at, "this has no meaning in a plan",
        "a name is made of letters a-z, digits and '_'; other text is written in double quotes");
    lx->torn = true;
    return 0;
}
