/* Errors and warnings for the author of a plan. Messages are collected as data and printed once,
 * sorted by place and without duplicates, because checks run in the order that suits the compiler
 * and people read in the order of the file. The line of the plan is shown with the cause
 * underlined. Bytes that a terminal could misread (control bytes, broken UTF-8) are shown as '?',
 * and a very long line is cut around the cause. */
#include "base/diagnostics.h"
#include "base/escape.h"

#include <stdlib.h>
#include <string.h>

/* ── Sources ─────────────────────────────────────────────────────────────────── */

struct source {
    const char *name, *bytes;
    int n;
};

static struct source *sources;
static int source_count, source_room;

int source_add(const char *name, const char *bytes, size_t n)
{
    if (n > INT32_MAX - 1) bug("a source of %zu bytes", n);
    if (source_count == source_room) {
        int room = source_room ? source_room * 2 : 16;
        struct source *grown = realloc(sources, sizeof *grown * (size_t)room);
        if (!grown) {
            fprintf(stderr, "planc: out of memory\n");
            exit(4);
        }
        sources = grown;
        source_room = room;
    }
    sources[source_count++] = (struct source){intern(name), bytes, (int)n};
    return source_count;
}

static const struct source *source_of(int file)
{
    if (file < 1 || file > source_count) bug("there is no source number %d", file);
    return &sources[file - 1];
}

const char *source_name(int file) { return source_of(file)->name; }

const char *source_bytes(int file, size_t *n)
{
    const struct source *s = source_of(file);
    if (n) *n = (size_t)s->n;
    return s->bytes;
}

static bool continues_code_point(char byte) { return ((unsigned char)byte & 0xc0) == 0x80; }

static int line_start(const struct source *s, int at)
{
    while (at > 0 && s->bytes[at - 1] != '\n') at--;
    return at;
}

void source_place(int file, int at, int *line, int *column)
{
    const struct source *s = source_of(file);
    if (at > s->n) at = s->n;
    *line = *column = 1;
    for (int i = 0; i < at; i++) *line += s->bytes[i] == '\n';
    int start = line_start(s, at);
    if (start == 0 && s->n >= 3 && at >= 3 && !memcmp(s->bytes, "\xef\xbb\xbf", 3))
        start = 3; /* a byte order mark has no column */
    for (int i = start; i < at; i++) *column += !continues_code_point(s->bytes[i]);
}

static bool is_called(const struct source *s, const char *name)
{
    size_t n = strlen(s->name), tail = strlen(name);
    return n >= tail && !strcmp(s->name + n - tail, name) &&
           (n == tail || s->name[n - tail - 1] == '/');
}

struct span source_line(const char *name, int line)
{
    for (int i = source_count; name && i >= 1; i--) {
        const struct source *s = source_of(i);
        if (!is_called(s, name)) continue;
        int from = 0, to;
        for (int at = 1; at < line && from < s->n; from++) at += s->bytes[from] == '\n';
        while (from < s->n && (s->bytes[from] == ' ' || s->bytes[from] == '\t')) from++;
        for (to = from; to < s->n && s->bytes[to] != '\n'; to++) {}
        while (to > from && s->bytes[to - 1] == ' ') to--;
        return (struct span){i, from, to};
    }
    return (struct span){0};
}

struct span span_join(struct span a, struct span b)
{
    if (a.file == 0) return b;
    if (b.file != a.file) return a;
    return (struct span){a.file, a.from < b.from ? a.from : b.from, a.to > b.to ? a.to : b.to};
}

/* ── The list ────────────────────────────────────────────────────────────────── */

struct note {
    struct span at;
    const char *text;
};

struct diagnostic {
    struct diagnostic *next;
    bool error, dropped;
    int order;
    struct span at;
    const char *text;
    struct note note[4];
    int notes;
    const char *help[4];
    int helps;
};

static struct diagnostic *first, **last = &first;
static int diagnostic_count, errors;

static struct diagnostic *append(bool error, struct span at, const char *text)
{
    struct diagnostic *d = TAKE(struct diagnostic);
    *d = (struct diagnostic){.error = error, .order = diagnostic_count++, .at = at, .text = text};
    errors += error;
    *last = d;
    last = &d->next;
    return d;
}

struct diagnostic *complain(struct span at, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    struct diagnostic *d = append(true, at, text_vformat(format, args));
    va_end(args);
    return d;
}

struct diagnostic *warn(struct span at, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    struct diagnostic *d = append(false, at, text_vformat(format, args));
    va_end(args);
    return d;
}

void add_note(struct diagnostic *d, struct span at, const char *format, ...)
{
    if (d->notes == (int)COUNT_OF(d->note)) return;
    va_list args;
    va_start(args, format);
    d->note[d->notes++] = (struct note){at, text_vformat(format, args)};
    va_end(args);
}

void add_help(struct diagnostic *d, const char *format, ...)
{
    if (d->helps == (int)COUNT_OF(d->help)) return;
    va_list args;
    va_start(args, format);
    d->help[d->helps++] = text_vformat(format, args);
    va_end(args);
}

/* Whether an earlier message blames this place, or notes it as a related place. */
static bool is_blamed(const struct diagnostic *until, int file, struct span at)
{
    for (const struct diagnostic *d = first; d && d != until; d = d->next) {
        bool noted = d->at.file == at.file && d->at.from == at.from, here = false;
        for (int i = 0; i < d->notes; i++) {
            noted |= d->note[i].at.file == at.file && d->note[i].at.from == at.from;
            here |= d->note[i].at.file == file;
        }
        if (d->error && !d->dropped && noted && here) return true;
    }
    return false;
}

void diagnostics_blame(int file)
{
    for (struct diagnostic *d = first; d; d = d->next) {
        int culprit = d->notes - 1;
        while (culprit >= 0 && (d->note[culprit].at.file == file || !d->note[culprit].at.file))
            culprit--;
        if (d->at.file != file || culprit < 0) continue;
        struct span shown = d->at;
        /* one number that is wrong shows in many places */
        if (d->error && is_blamed(d, file, d->note[culprit].at)) {
            d->dropped = true;
            errors--;
            continue;
        }
        d->at = d->note[culprit].at;
        d->note[culprit] = (struct note){shown, "here it shows"};
    }
}

int error_count(void) { return errors; }

void diagnostics_reset(void)
{
    first = NULL;
    last = &first;
    diagnostic_count = errors = 0;
}

struct diagnostics_mark diagnostics_mark(void)
{
    return (struct diagnostics_mark){last, diagnostic_count, errors};
}

const char *diagnostics_since(struct diagnostics_mark mark)
{
    for (const struct diagnostic *d = *mark.last; d; d = d->next)
        if (d->error) return d->text;
    return NULL;
}

void diagnostics_drop(struct diagnostics_mark mark)
{
    last = mark.last;
    *last = NULL;
    diagnostic_count = mark.count;
    errors = mark.errors;
}

static int by_place(const void *left, const void *right)
{
    const struct diagnostic *a = *(const struct diagnostic *const *)left,
                            *b = *(const struct diagnostic *const *)right;
    if (a->at.file != b->at.file) return a->at.file < b->at.file ? -1 : 1;
    if (a->at.from != b->at.from) return a->at.from < b->at.from ? -1 : 1;
    return a->order < b->order ? -1 : a->order > b->order;
}

static bool is_double(const struct diagnostic *a, const struct diagnostic *b)
{
    return a->error == b->error && a->at.file == b->at.file && a->at.from == b->at.from &&
           !strcmp(a->text, b->text);
}

/* Sorted, doubles dropped; how many are left. */
static int sorted(struct diagnostic ***out)
{
    struct diagnostic **list = TAKE_MANY(struct diagnostic *, diagnostic_count + 1);
    int n = 0, kept = 0;
    for (struct diagnostic *d = first; d; d = d->next)
        if (!d->dropped) list[n++] = d;
    qsort(list, (size_t)n, sizeof *list, by_place);
    for (int i = 0; i < n; i++) {
        bool seen = false;
        for (int j = kept - 1;
             j >= 0 && list[j]->at.file == list[i]->at.file && list[j]->at.from == list[i]->at.from;
             j--)
            seen = seen || is_double(list[j], list[i]);
        if (!seen) list[kept++] = list[i];
    }
    *out = list;
    return kept;
}

/* ── Printing ────────────────────────────────────────────────────────────────── */

enum paint { PLAIN, BOLD, RED, MAGENTA, CYAN, GREEN };
static const char *const escape[] = {"\033[0m",    "\033[1m",    "\033[1;31m",
                                     "\033[1;35m", "\033[1;36m", "\033[1;32m"};

static void painted(FILE *to, bool colour, enum paint paint, const char *text)
{
    if (colour)
        fprintf(to, "%s%s%s", escape[paint], text, escape[PLAIN]);
    else
        fputs(text, to);
}

#define WIDEST 160 /* columns of a plan that are shown at once */

/* Whether a byte lies in a place that a note of the message points at: a related place. */
static bool is_noted(const struct diagnostic *d, int at)
{
    for (int i = 0; i < d->notes; i++)
        if (d->note[i].at.file == d->at.file && at >= d->note[i].at.from && at < d->note[i].at.to)
            return true;
    return false;
}

/* The line, the cause underlined with ^ and related places on the same line with -. */
static void print_line(FILE *to, bool colour, const struct diagnostic *d)
{
    struct span at = d->at;
    const struct source *s = source_of(at.file);
    int from = at.from > s->n ? s->n : at.from, to_byte = at.to > s->n ? s->n : at.to;
    int start = line_start(s, from), end = from, line, column;
    while (end < s->n && s->bytes[end] != '\n') end++;
    if (end > start && s->bytes[end - 1] == '\r') end--;
    if (to_byte > end) to_byte = end;
    source_place(at.file, from, &line, &column);
    if (start == 0 && s->n >= 3 && !memcmp(s->bytes, "\xef\xbb\xbf", 3)) start = 3;
    bool cut_left = false, cut_right = false;
    if (column > WIDEST - 40) { /* move the window so that the cause is in it */
        cut_left = true;
        for (int skip = column - 40; skip > 0 && start < from; skip--) {
            start++;
            while (start < from && continues_code_point(s->bytes[start])) start++;
        }
    }
    struct text shown = {0}, marks = {0};
    if (cut_left) {
        text_add(&shown, "…");
        text_add(&marks, " ");
    }
    int carets = 0, columns = 0;
    for (int i = start; i < end;) {
        if (columns++ == WIDEST) {
            cut_right = true;
            break;
        }
        int length = utf8_length(s->bytes + i, end - i);
        bool marked = i >= from && (i < to_byte || i == from);
        bool control = length == 1 && ((unsigned char)s->bytes[i] < 0x20 || s->bytes[i] == 0x7f);
        if (s->bytes[i] == '\t') {
            text_add(&shown, "\t");
            text_add(&marks, marked ? "^" : "\t");
        } else {
            if (length == 0 || control)
                text_add(&shown, "?");
            else
                text_add_bytes(&shown, s->bytes + i, (size_t)length);
            text_add(&marks, marked ? "^" : is_noted(d, i) ? "-" : " ");
        }
        carets += marked;
        i += length ? length : 1;
    }
    if (cut_right) text_add(&shown, "…");
    if (!carets) { /* the cause is what is missing at the end of the line */
        while (marks.length && from < end) marks.bytes[--marks.length] = 0;
        text_add(&marks, "^");
    }
    while (marks.length &&
           (marks.bytes[marks.length - 1] == ' ' || marks.bytes[marks.length - 1] == '\t'))
        marks.bytes[--marks.length] = 0;
    fprintf(to, "%5d |%s%s\n      | ", line, shown.length ? " " : "",
            shown.length ? shown.bytes : "");
    painted(to, colour, GREEN, marks.bytes);
    fputc('\n', to);
}

static void print_head(FILE *to, bool colour, struct span at, const char *word, enum paint paint,
                       const char *text)
{
    if (at.file) {
        int line, column;
        source_place(at.file, at.from, &line, &column);
        painted(to, colour, BOLD, text_format("%s:%d:%d: ", source_name(at.file), line, column));
    } else {
        painted(to, colour, BOLD, "planc: ");
    }
    painted(to, colour, paint, text_format("%s: ", word));
    painted(to, colour, BOLD, text);
    fputc('\n', to);
}

static void print_one(FILE *to, bool colour, const struct diagnostic *d)
{
    print_head(to, colour, d->at, d->error ? "error" : "warning", d->error ? RED : MAGENTA,
               d->text);
    if (d->at.file) print_line(to, colour, d);
    for (int i = 0; i < d->notes; i++)
        print_head(to, colour, d->note[i].at, "note", CYAN, d->note[i].text);
    for (int i = 0; i < d->helps; i++) {
        painted(to, colour, GREEN, "help: ");
        fprintf(to, "%s\n", d->help[i]);
    }
}

void diagnostics_print(FILE *to, bool colour)
{
    enum { SHOWN = 20 };
    struct diagnostic **list;
    int n = sorted(&list), shown = 0, left = 0;
    for (int i = 0; i < n; i++) {
        if (list[i]->error && ++shown > SHOWN)
            left++;
        else
            print_one(to, colour, list[i]);
    }
    if (left) fprintf(to, "planc: and %d more error%s\n", left, left == 1 ? "" : "s");
}

static void print_json_string(FILE *to, const char *text)
{
    struct text t = {0};
    escape_json(&t, text);
    fputs(t.bytes, to);
}

static void print_json_list(FILE *to, struct diagnostic **list, int n, bool error)
{
    bool some = false;
    fputc('[', to);
    for (int i = 0; i < n; i++) {
        const struct diagnostic *d = list[i];
        if (d->error != error) continue;
        int line = 0, column = 0;
        if (d->at.file) source_place(d->at.file, d->at.from, &line, &column);
        fprintf(to, "%s\n  {\"file\": ", some ? "," : "");
        some = true;
        print_json_string(to, d->at.file ? source_name(d->at.file) : "");
        fprintf(to, ", \"line\": %d, \"column\": %d, \"message\": ", line, column);
        print_json_string(to, d->text);
        struct text help = {0};
        for (int j = 0; j < d->helps; j++) text_add(&help, "%s%s", j ? "\n" : "", d->help[j]);
        fputs(", \"help\": ", to);
        print_json_string(to, help.bytes ? help.bytes : "");
        fputs(", \"notes\": [", to);
        for (int j = 0; j < d->notes; j++) {
            const struct span at = d->note[j].at;
            line = column = 0;
            if (at.file) source_place(at.file, at.from, &line, &column);
            fprintf(to, "%s{\"file\": ", j ? ", " : "");
            print_json_string(to, at.file ? source_name(at.file) : "");
            fprintf(to, ", \"line\": %d, \"column\": %d, \"message\": ", line, column);
            print_json_string(to, d->note[j].text);
            fputc('}', to);
        }
        fputs("]}", to);
    }
    fputs(some ? "\n]" : "]", to);
}

void diagnostics_print_json(FILE *to)
{
    struct diagnostic **list;
    int n = sorted(&list);
    fputs("{\"errors\": ", to);
    print_json_list(to, list, n, true);
    fputs(", \"warnings\": ", to);
    print_json_list(to, list, n, false);
    fputs("}\n", to);
}

/* ── Spelling ────────────────────────────────────────────────────────────────── */

static bool same_letter(char a, char b)
{
    return a == b || ((a ^ b) == 0x20 && ((a | 0x20) >= 'a' && (a | 0x20) <= 'z'));
}

/* Edit distance; swapped neighbours count once and capitals not at all. Names longer than 63 bytes
 * have no near name. */
static int distance(const char *a, const char *b)
{
    enum { MOST = 64 };
    int n = (int)strlen(a), m = (int)strlen(b), row[3][MOST];
    if (n >= MOST || m >= MOST) return MOST;
    for (int j = 0; j <= m; j++) row[0][j] = j;
    for (int i = 1; i <= n; i++) {
        int *now = row[i % 3], *up = row[(i + 2) % 3], *upper = row[(i + 1) % 3];
        now[0] = i;
        for (int j = 1; j <= m; j++) {
            int best = up[j - 1] + !same_letter(a[i - 1], b[j - 1]);
            if (up[j] + 1 < best) best = up[j] + 1;
            if (now[j - 1] + 1 < best) best = now[j - 1] + 1;
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] &&
                upper[j - 2] + 1 < best)
                best = upper[j - 2] + 1;
            now[j] = best;
        }
    }
    return row[n % 3][m];
}

const char *nearest_name(const char *name, const char *const *candidates, int n)
{
    int length = (int)strlen(name), limit = length < 5 ? 1 : (length + 1) / 3, best = limit + 1;
    const char *found = NULL;
    for (int i = 0; i < n; i++) {
        int d = distance(name, candidates[i]);
        if (d < best && d < (int)strlen(candidates[i])) {
            best = d;
            found = candidates[i];
        }
    }
    return found;
}
