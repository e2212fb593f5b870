/* One place that spells bytes from outside as JSON and as C. Each emitter once had its own
 * function, which knew quotes and backslashes but not trigraphs or the end of a comment: a title
 * with an asterisk and a slash in it was compiled as code. */
#include "base/escape.h"

#include <string.h>

int utf8_length(const char *bytes, int n)
{
    const unsigned char *b = (const unsigned char *)bytes;
    if (b[0] < 0x80) return 1;
    int length = b[0] >= 0xF0 ? 4 : b[0] >= 0xE0 ? 3 : 2;
    if (b[0] < 0xC2 || b[0] > 0xF4 || length > n) return 0;
    for (int i = 1; i < length; i++)
        if ((b[i] & 0xC0) != 0x80) return 0;
    if ((b[0] == 0xE0 && b[1] < 0xA0) || (b[0] == 0xED && b[1] > 0x9F) ||
        (b[0] == 0xF0 && b[1] < 0x90) || (b[0] == 0xF4 && b[1] > 0x8F))
        return 0;
    return length;
}

const char *utf8_text(const char *s)
{
    if (!s) return NULL;
    struct text t = {0};
    bool clean = true;
    int length = 0;
    for (int n = (int)strlen(s), i = 0; i < n; i += length ? length : 1) {
        length = utf8_length(s + i, n - i);
        clean = clean && length;
        text_add_bytes(&t, length ? s + i : "\xEF\xBF\xBD", length ? (size_t)length : 3);
    }
    return clean ? s : t.bytes;
}

void escape_json(struct text *to, const char *s)
{
    if (!s) {
        text_add(to, "null");
        return;
    }
    text_add(to, "\"");
    for (s = utf8_text(s); *s; s++) {
        if (*s == '"' || *s == '\\')
            text_add(to, "\\%c", *s);
        else if ((unsigned char)*s < 0x20 || *s == 0x7F)
            text_add(to, "\\u%04x", (unsigned char)*s);
        else
            text_add_bytes(to, s, 1);
    }
    text_add(to, "\"");
}

const char *escape_c(const char *s)
{
    if (!s) return "0";
    struct text t = {0};
    text_add(&t, "\"");
    for (const char *before = NULL; *s; before = s++) {
        unsigned char b = (unsigned char)*s;
        if (b == '"' || b == '\\' || (b == '?' && before && *before == '?'))
            text_add(&t, "\\%c", b);
        else if (b < 0x20 || b >= 0x7F)
            text_add(&t, "\\%03o", b);
        else
            text_add_bytes(&t, s, 1);
    }
    text_add(&t, "\"");
    return t.bytes;
}

/* U+061C, U+200E, U+200F, U+202A to U+202E, U+2066 to U+2069: compilers warn of them, and a reader
 * is misled. */
static bool turns_text(const char *s)
{
    const unsigned char *b = (const unsigned char *)s;
    if (b[0] == 0xD8) return b[1] == 0x9C;
    if (b[0] != 0xE2) return false;
    return (b[1] == 0x80 && (b[2] == 0x8E || b[2] == 0x8F || (b[2] >= 0xAA && b[2] <= 0xAE))) ||
           (b[1] == 0x81 && b[2] >= 0xA6 && b[2] <= 0xA9);
}

const char *escape_comment(const char *s)
{
    struct text t = {0};
    text_add(&t, "%s", "");
    int length = 0;
    for (int n = (int)strlen(s), i = 0; i < n; i += length ? length : 1) {
        length = utf8_length(s + i, n - i);
        unsigned char b = (unsigned char)s[i];
        char last = t.length ? t.bytes[t.length - 1] : ' ';
        if (!length || b == 0x7F || turns_text(s + i))
            text_add(&t, "?");
        else if (b < 0x20)
            text_add(&t, " ");
        else {
            /* also at the ends: the caller puts nothing between this and its own marks but a
             * blank */
            if ((last == '*' && b == '/') || (last == '/' && b == '*') || (last == '?' && b == '?'))
                text_add(&t, " ");
            text_add_bytes(&t, s + i, (size_t)length);
        }
    }
    /* a backslash before the end of a line would join the next one */
    if (t.length && t.bytes[t.length - 1] == '\\') text_add(&t, " ");
    return t.bytes;
}

const char *printable_text(const char *s)
{
    struct text t = {0};
    text_add(&t, "%s", "");
    int length = 0;
    for (int n = (int)strlen(s), i = 0; i < n; i += length ? length : 1) {
        length = utf8_length(s + i, n - i);
        unsigned char b = (unsigned char)s[i], next = length == 2 ? (unsigned char)s[i + 1] : 0;
        bool control = b < 0x20 || b == 0x7F || (b == 0xC2 && next < 0xA0);
        if (!length || control || turns_text(s + i))
            text_add(&t, "?");
        else
            text_add_bytes(&t, s + i, (size_t)length);
    }
    return t.bytes;
}

const char *escape_word(const char *s)
{
    struct text t = {0};
    text_add(&t, "%s", "");
    for (; *s; s++) {
        unsigned char b = (unsigned char)*s;
        if (b < 0x20 || b == 0x7F || b == '"' || b == '\\')
            text_add(&t, "\\x%02x", b);
        else
            text_add_bytes(&t, s, 1);
    }
    return t.bytes;
}

static int hex_digit(char c)
{
    return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

const char *unescape_word(const char *bytes, size_t n)
{
    struct text t = {0};
    text_add(&t, "%s", "");
    for (size_t i = 0; i < n; i++) {
        char c = bytes[i];
        if (c == '\\' && i + 3 < n && bytes[i + 1] == 'x' && hex_digit(bytes[i + 2]) >= 0 &&
            hex_digit(bytes[i + 3]) >= 0) {
            c = (char)(hex_digit(bytes[i + 2]) * 16 + hex_digit(bytes[i + 3]));
            i += 3;
        }
        text_add_bytes(&t, &c, 1);
    }
    return t.bytes;
}
