/* Finds the '{' that was never closed and the '}' that is one too many. A parser notices at the end
 * of the file, where only the outermost block is open. This file uses the two signs that people
 * use: a line that is not indented deeper than its block, and a section in a block that cannot hold
 * one. It looks through the text before parsing, and only if the braces do not balance. What it
 * finds is reported and repaired when the scanner reaches it, so the rest of the file is still
 * understood. */
#include "text/lex.h"
#include "text/language.h"

#include <string.h>

/* A block that is open. `flat`: what stands in it is not indented, so its indentation says
 * nothing. */
struct block {
    struct span brace;
    const char *name;
    int indent;
    bool measured, flat, filled;
};

struct look {
    struct lex *lx;
    int n, at;  /* bytes, and the place */
    int indent; /* of the line */
    bool fresh; /* nothing on this line yet */
    bool idle;  /* an item would begin here */
    struct span head;
    bool is_head;       /* of the item: its first word; no '=' yet */
    int parens, wanted; /* braces to be supplied (or, negative, to be dropped) */
    struct block open[DEEPEST_BLOCK];
    int depth;
    struct block closed;
    int closed_at; /* the plan that ended last, and where */
};

static bool is_name(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}

/* Behind a comment or a string that begins here; `at` when none does. */
static int behind(const char *bytes, int at, int n)
{
    char c = bytes[at];
    bool apart = at == 0 || strchr(" \t\r\n", bytes[at - 1]);
    if (c == '"' || c == '\'' || c == '`') return at + lex_string_length(bytes + at, n - at);
    if (c == '/' && at + 1 < n && bytes[at + 1] == '*' && apart)
        return at + lex_comment_length(bytes + at, n - at);
    if (c != '#' && !(c == '/' && at + 1 < n && bytes[at + 1] == '/' && apart)) return at;
    while (at < n && bytes[at] != '\n') at++;
    return at;
}

/* opened - closed. */
static int balance(const char *bytes, int n)
{
    int all = 0;
    for (int at = 0; at < n;) {
        int to = behind(bytes, at, n);
        all += to == at && bytes[at] == '{';
        all -= to == at && bytes[at] == '}';
        at = to > at ? to : at + 1;
    }
    return all;
}

static bool holds_sections(const struct block *b) { return !b->name || !strcmp(b->name, "plan"); }

static bool is_architecture(const struct block *b)
{
    return b->name && !strcmp(b->name, "architecture");
}

static bool is_section(const char *name)
{
    return !strchr(name, '.') && language->is_section(name);
}

static void supply(struct look *l, struct span before)
{
    const struct block *b = &l->open[--l->depth];
    PUSH(&l->lx->mend, ((struct mended_brace){before.from, true, b->brace, before, NULL}));
    l->wanted--;
}

/* A word that is first on its line and not indented deeper than the block it stands in. */
static void see_line(struct look *l, struct span word)
{
    while (l->depth && l->wanted > 0) {
        struct block *b = &l->open[l->depth - 1];
        bool deeper = l->indent > b->indent, first = !b->measured;
        b->measured = true;
        if (first && !b->filled && !deeper) b->flat = true;
        if (deeper || b->flat) return;
        supply(l, word);
    }
}

/* `batch {` in a block that holds no sections, or after the end of the plan. */
static void see_head(struct look *l, const char *name)
{
    bool section = is_section(name), top = !strcmp(name, "plan") || !strcmp(name, "architecture");
    bool in_plan = false;
    for (int i = 0; i < l->depth; i++) in_plan |= holds_sections(&l->open[i]);
    while (l->wanted > 0 && l->depth &&
           (top || (section && in_plan && !holds_sections(&l->open[l->depth - 1]))))
        supply(l, l->head);
    bool of_architecture = l->closed_at && is_architecture(&l->closed),
         layer = !strcmp(name, "repeat") || !strcmp(name, "metrics") || !strcmp(name, "stored");
    if (l->wanted < 0 && (of_architecture ? layer : section) && l->depth == 0 && l->closed_at) {
        PUSH(&l->lx->mend, ((struct mended_brace){l->closed_at,
                                                  false,
                                                  {l->lx->file, l->closed_at, l->closed_at + 1},
                                                  l->head,
                                                  of_architecture ? "architecture" : "plan"}));
        l->wanted++;
        l->open[l->depth++] = l->closed;
        l->closed_at = 0;
    }
}

static void open_block(struct look *l, int indent)
{
    const char *name =
        l->is_head ? intern_bytes(l->lx->bytes + l->head.from, (size_t)(l->head.to - l->head.from))
                   : NULL;
    if (name) see_head(l, name);
    if (l->depth < DEEPEST_BLOCK)
        l->open[l->depth++] = (struct block){
            .brace = {l->lx->file, l->at, l->at + 1}, .name = name, .indent = indent};
}

static void close_block(struct look *l)
{
    struct span here = {l->lx->file, l->at, l->at + 1};
    bool matches = false;
    for (int i = 0; i < l->depth; i++) matches |= l->open[i].indent == l->indent;
    while (l->fresh && matches && l->wanted > 0 && l->depth > 1 && !l->open[l->depth - 1].flat &&
           l->open[l->depth - 1].indent > l->indent)
        supply(l, here);
    if (!l->depth) return;
    l->depth--;
    if (l->depth == 0 && (holds_sections(&l->open[0]) || is_architecture(&l->open[0]))) {
        l->closed = l->open[0];
        l->closed_at = l->at;
    }
}

/* One word or sign. */
static void see(struct look *l, int head_indent)
{
    char c = l->lx->bytes[l->at];
    int to = l->at + 1;
    if (c == '{' || c == '}') {
        l->is_head &= !l->idle;
        if (c == '{')
            open_block(l, head_indent);
        else if (lex_behind_own(l->lx, l->at, 0) == 0)
            close_block(l);
        l->parens = 0;
    } else {
        while (is_name(c) && to < l->n && is_name(l->lx->bytes[to])) to++;
        struct span word = {l->lx->file, l->at, to};
        if (l->fresh && is_name(c) && l->parens == 0) see_line(l, word);
        if (l->idle) {
            l->head = word;
            l->is_head = is_name(c);
        }
        l->is_head &= c != '=';
        l->parens += (c == '(' || c == '[') - ((c == ')' || c == ']') && l->parens > 0);
        if (l->depth && !l->fresh) l->open[l->depth - 1].filled |= !l->open[l->depth - 1].measured;
    }
    l->idle = c == '{' || c == '}' || c == ';';
    l->fresh = false;
    l->at = to;
}

int lex_behind_own(const struct lex *lx, int brace, int otherwise)
{
    for (int i = 0; i < lx->headless.n; i++)
        if (lx->headless.item[i].brace == brace) return brace + 1;
    return otherwise;
}

static int behind_blanks(const char *bytes, int at)
{
    while (bytes[at] == ' ' || bytes[at] == '\t' || bytes[at] == '\r') at++;
    return at;
}

static bool line_ends(char c) { return !c || c == '\n' || c == '#'; }

static int next_line(const char *bytes, int at, int n)
{
    while (at < n && bytes[at] != '\n') at++;
    return at + 1;
}

/* The first byte of the head of a block alone on its line, all but its '{'; -1 when there is
 * something else. */
static int bare_head(const char *bytes, int word, int n)
{
    int at = word + (bytes[word] == '['), name = at;
    while (is_name(bytes[at])) at++;
    const char *text = intern_bytes(bytes + name, (size_t)(at - name));
    bool plan = !strcmp(text, "plan"), section = at > name && (plan || is_section(text));
    at = behind_blanks(bytes, at);
    if (plan && bytes[at] == '"') at += lex_string_length(bytes + at, n - at);
    if (bytes[at] == (bytes[word] == '[' ? ']' : ':'))
        at = behind_blanks(bytes, at + 1);
    else
        while (is_name(bytes[at])) at++;
    return section && line_ends(bytes[behind_blanks(bytes, at)]) ? word : -1;
}

/* The heads without '{' whose lines lie deeper and whose '}' stands below them; `most` at most. */
static void find_headless(struct lex *lx, int n, int most)
{
    for (int line = lx->at; line < n && lx->headless.n < most;
         line = next_line(lx->bytes, line, n)) {
        int word = behind_blanks(lx->bytes, line), head = bare_head(lx->bytes, word, n), inside = 0;
        for (int at = next_line(lx->bytes, line, n); head >= 0 && at < n;
             at = next_line(lx->bytes, at, n)) {
            int first = behind_blanks(lx->bytes, at);
            if (line_ends(lx->bytes[first])) continue;
            if (first - at <= word - line || lx->bytes[first] == '{') {
                if (inside && first - at == word - line && lx->bytes[first] == '}')
                    PUSH(&lx->headless, ((struct open_head){head, first}));
                break;
            }
            inside++;
        }
    }
}

void lex_look_for_braces(struct lex *lx, int n)
{
    struct look l = {.lx = lx, .n = n, .at = lx->at, .fresh = true, .idle = true};
    l.wanted = balance(lx->bytes, n);
    find_headless(lx, n, -l.wanted);
    l.wanted += lx->headless.n;
    int line = lx->at, head_indent = 0;
    while (l.wanted && l.at < n) {
        char c = lx->bytes[l.at];
        int to = behind(lx->bytes, l.at, n);
        if (c == '\n') {
            l.fresh = true;
            line = l.at + 1;
            if (l.parens == 0 && !l.is_head) l.idle = true;
        }
        if (c == ' ' || c == '\t' || c == '\r' || c == '\n') {
            l.at++;
        } else if (to > l.at) {
            l.is_head &= !l.idle || c != '"';
            l.fresh = false;
            l.at = to;
        } else {
            bool sign = c == '{';
            if (l.fresh) {
                l.indent = l.at - line;
                l.idle |= l.parens == 0 && !sign;
            }
            if (l.idle) head_indent = l.indent;
            see(&l, head_indent);
        }
    }
}
