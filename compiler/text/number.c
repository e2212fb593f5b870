/* Numbers as they are written and shown. A number and its unit are one token, and the unit decides
 * which keys accept it. Both are read exactly: 0.1 is one tenth, 400Gbit/s is 5e10 bytes per
 * second. */
#include "text/constant.h"

#include <stdlib.h>
#include <string.h>

typedef __int128 wide;

static const struct {
    const char *text;
    int64_t factor;
} prefixes[] = {
    /* longer first */
    {"Ki", (int64_t)1 << 10},
    {"Mi", (int64_t)1 << 20},
    {"Gi", (int64_t)1 << 30},
    {"Ti", (int64_t)1 << 40},
    {"Pi", (int64_t)1 << 50},
    {"k", 1000},
    {"K", 1000},
    {"M", 1000000},
    {"G", 1000000000},
    {"T", 1000000000000},
    {"P", 1000000000000000},
    {"", 1},
};
static const struct {
    const char *text;
    enum unit_kind unit;
    int64_t top, bottom;
    bool scales;
} bases[] = {
    {"", UNIT_NONE, 1, 1, true},
    {"B", UNIT_BYTES, 1, 1, true},
    {"bit", UNIT_BYTES, 1, 8, true},
    {"B/s", UNIT_BYTES_PER_S, 1, 1, true},
    {"bit/s", UNIT_BYTES_PER_S, 1, 8, true},
    {"FLOP/s", UNIT_FLOPS, 1, 1, true},
    {"ns", UNIT_SECONDS, 1, 1000000000, false},
    {"us", UNIT_SECONDS, 1, 1000000, false},
    {"ms", UNIT_SECONDS, 1, 1000, false},
    {"s", UNIT_SECONDS, 1, 1, false},
    {"min", UNIT_SECONDS, 60, 1, false},
    {"h", UNIT_SECONDS, 3600, 1, false},
};

static bool find_unit(const char *suffix, int64_t *factor, size_t *base)
{
    for (size_t p = 0; p < COUNT_OF(prefixes); p++) {
        size_t n = strlen(prefixes[p].text);
        if (strncmp(suffix, prefixes[p].text, n)) continue;
        for (*base = 0; *base < COUNT_OF(bases); ++*base)
            if (!strcmp(suffix + n, bases[*base].text) && (bases[*base].scales || n == 0)) {
                *factor = prefixes[p].factor;
                return !(*base == 0 && prefixes[p].text[0] == 'K' && n == 1);
            }
    }
    return false;
}

static bool unknown_unit(const char *suffix, struct span at)
{
    struct diagnostic *d = complain(at, "there is no unit '%s'", suffix);
    size_t n;
    const char *bytes = at.file ? source_bytes(at.file, &n) : NULL;
    bool hexadecimal = bytes && bytes[at.from] == '0' && bytes[at.from + 1] == 'x';
    if (suffix[0] == 'x' && suffix[1] >= '0' && suffix[1] <= '9' && bytes && !hexadecimal)
        add_help(d, "a product is written with *; a mesh of two sizes is fsdp = 64;  dp = 8");
    else if (!strcmp(suffix, "m"))
        add_help(d, "a minute is 1min, a million 1M, a millisecond 1ms");
    else if (!strcmp(suffix, "K"))
        add_help(d, "a thousand is 1k, 1024 is 1Ki");
    else if (strstr(suffix, "FLOP"))
        add_help(d, "a rate is written 1TFLOP/s");
    else if (!strncmp(suffix, "sec", 3))
        add_help(d, "a second is 1s");
    else if (!strncmp(suffix, "hour", 4) || !strcmp(suffix, "hr") || !strcmp(suffix, "hrs"))
        add_help(d, "an hour is 1h");
    else if (!strncmp(suffix, "day", 3) || !strcmp(suffix, "d"))
        add_help(d, "a day is 24h");
    else if (!strncmp(suffix, "minute", 6) || !strcmp(suffix, "mins"))
        add_help(d, "a minute is 1min");
    else if (strlen(suffix) > 1 && suffix[strlen(suffix) - 1] == 'b' && !strchr(suffix, '/') &&
             find_unit(text_format("%.*sB", (int)strlen(suffix) - 1, suffix), &(int64_t){0},
                       &(size_t){0}))
        add_help(d, "%.*sB is bytes, %.*sbit is bits", (int)strlen(suffix) - 1, suffix,
                 (int)strlen(suffix) - 1, suffix);
    else if (!strcmp(suffix, "b"))
        add_help(d, "10^9 is 1G; bytes are B");
    else if (!strcmp(suffix, "x") || (suffix[0] == 'x' && at.to - at.from > 2))
        add_help(d, "numbers are decimal");
    else
        add_help(d, "units are k M G T P, Ki Mi Gi Ti Pi, each alone or with B, B/s, bit/s, "
                    "FLOP/s; and ns us ms s min h");
    return false;
}

bool number_has_unit(const char *text)
{
    int64_t factor;
    size_t base, n = strspn(text, "0123456789_.");
    return text[n] && find_unit(text + n, &factor, &base);
}

/* The digits of text[0..n) as top / bottom. False when they do not fit in 64 bits but are whole. */
static bool digits(const char *text, size_t n, struct span at, struct constant *out)
{
    const wide most = (wide)1 << 120;
    char plain[400];
    size_t length = 0;
    wide top = 0, bottom = 1;
    long exponent = 0;
    bool point = false, fits = true;
    for (size_t i = 0; i < n; i++) {
        if (text[i] == '_') continue;
        if (length + 1 < sizeof plain) plain[length++] = text[i];
        if (text[i] == '.') {
            point = true;
        } else if (text[i] == 'e' || text[i] == 'E') {
            char *end;
            long written = strtol(text + i + 1, &end, 10);
            exponent += written > 10000 ? 10000 : written < -10000 ? -10000 : written;
            for (i++; i < n; i++)
                if (length + 1 < sizeof plain) plain[length++] = text[i];
        } else if (top < most / 10) {
            top = top * 10 + (text[i] - '0');
            exponent -= point;
        } else {
            fits = fits && point; /* digits after the point that are too fine to keep */
            if (!point) break;
        }
    }
    plain[length] = 0;
    for (; fits && exponent > 0 && top; exponent--)
        if (!(fits = top < most / 10))
            break;
        else
            top *= 10;
    while (exponent < 0 && top && top % 10 == 0) {
        top /= 10;
        exponent++;
    }
    for (; exponent < 0 && bottom < most / 10; exponent++) bottom *= 10;
    if (!fits) {
        complain(at, "this number does not fit in 64 bits");
        return false;
    }
    double value = strtod(plain, NULL);
    if (exponent < 0 && top) { /* smaller than any fraction we keep */
        *out = constant_real(value);
        out->at = at;
        return true;
    }
    if (!constant_fraction(top, bottom, UNIT_NONE, at, out)) return false;
    out->number = value;
    return true;
}

bool constant_from_number(const struct ast *number, struct constant *out)
{
    const char *text = number->text;
    size_t n = strspn(text, "0123456789_.");
    if (text[n] == 'e' || text[n] == 'E') {
        size_t sign = text[n + 1] == '-' || text[n + 1] == '+',
               power = strspn(text + n + 1 + sign, "0123456789");
        n += power ? 1 + sign + power : 0;
    }
    int64_t factor;
    size_t base;
    if (!find_unit(text + n, &factor, &base)) return unknown_unit(text + n, number->at);
    if (!digits(text, n, number->at, out)) return false;
    if (factor == 1 && bases[base].top == 1 && bases[base].bottom == 1) {
        out->unit = bases[base].unit;
        return true;
    }
    if (!out->exact) {
        out->number *= (double)factor * (double)bases[base].top / (double)bases[base].bottom;
        out->unit = bases[base].unit;
        return true;
    }
    wide scale_top = (wide)factor * bases[base].top;
    return constant_fraction((wide)out->top * scale_top, (wide)out->bottom * bases[base].bottom,
                             bases[base].unit, number->at, out);
}

/* ── Showing ─────────────────────────────────────────────────────────────────── */

static const char *rate_text(double x, const char *unit)
{
    static const char *const prefix[] = {"", "k", "M", "G", "T", "P"};
    size_t i = 0;
    while (i + 1 < COUNT_OF(prefix) && (x >= 1000 || x <= -1000)) {
        x /= 1000;
        i++;
    }
    return text_format("%.6g %s%s", x, prefix[i], unit);
}

static const char *seconds_text(double x)
{
    double size = x < 0 ? -x : x;
    if (size == 0 || size >= 1)
        return size >= 60 && x / 60 == (double)(int64_t)(x / 60) ? text_format("%.6g min", x / 60)
                                                                 : text_format("%.6g s", x);
    return size >= 1e-3   ? text_format("%.6g ms", x * 1e3)
           : size >= 1e-6 ? text_format("%.6g us", x * 1e6)
                          : text_format("%.6g ns", x * 1e9);
}

static const char *number_text(const struct constant *c)
{
    switch (c->unit) {
    case UNIT_NONE: break;
    case UNIT_BYTES:
        return constant_is_whole(c) ? text_bytes(c->top)
                                    : text_format("%s bytes", text_number(c->number));
    case UNIT_BYTES_PER_S: return rate_text(c->number, "B/s");
    case UNIT_FLOPS: return rate_text(c->number, "FLOP/s");
    case UNIT_SECONDS: return seconds_text(c->number);
    }
    if (!c->exact) return text_number(c->number);
    if (c->bottom == 1) return text_format("%lld", (long long)c->top);
    int64_t rest = c->bottom;
    while (rest % 2 == 0) rest /= 2;
    while (rest % 5 == 0) rest /= 5;
    return rest == 1 ? text_number(c->number)
                     : text_format("%lld/%lld", (long long)c->top, (long long)c->bottom);
}

const char *constant_text(const struct constant *c)
{
    switch (c->kind) {
    case CONST_NUMBER: return number_text(c);
    case CONST_TRUTH: return c->truth ? "on" : "off";
    case CONST_STRING: return text_format("\"%s\"", c->text);
    case CONST_WORD: return c->text;
    case CONST_RANGE:
        return text_format("%s..%s", constant_text(&c->item[0]), constant_text(&c->item[1]));
    case CONST_LIST: break;
    }
    struct text t = {0};
    text_add(&t, "[");
    for (int i = 0; i < c->n; i++) text_add(&t, "%s%s", i ? ", " : "", constant_text(&c->item[i]));
    text_add(&t, "]");
    return t.bytes;
}
