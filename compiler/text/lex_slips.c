/* Mistakes that have one meaning: `mesh: {`, `fsdp: 16`, `"mesh" {`, 32,000, a file name without
 * quotes, a comma between entries, two entries on a line. They come from JSON, YAML, TOML and
 * command lines. Each is reported once and repaired before the parser sees it, so one mistake gives
 * one message and the rest is still read; repetitions are counted. Keys are looked up only for
 * messages: correct text is never read differently. */
#include "text/lex_slips.h"
#include "text/language.h"
#include "plan.tab.h"

#include <string.h>

/* ── Names, blocks, entries ──────────────────────────────────────────────────── */

/* `( fsdp = 16 )` or `[ ]` where a block was meant. */
static bool opens_block(const struct lex *lx, const struct token *t)
{
    int at = lex_behind_blanks(lx, t->at.to);
    if (lx->bytes[at] == (t->kind == LPAR ? ')' : ']')) return true;
    int name = lex_behind_name(lx, at), sign = lex_behind_blanks(lx, name);
    return name > at && ((lx->bytes[sign] == '=' && lx->bytes[sign + 1] != '=') ||
                         (t->kind == LBRACK && lx->bytes[sign] == ':'));
}

static const char *head_text(const struct lex *lx)
{
    bool quoted = lx->first.kind == NAME && lx->bytes[lx->first.at.from] == '"';
    return lex_text_of(
        lx, (struct span){lx->file, lx->first.at.from + quoted,
                          lx->last.at.to - (quoted && lx->bytes[lx->last.at.to - 1] == '"')});
}

/* `llama {` or `"title" {` after '='. */
static bool names_block(const struct lex *lx, int at)
{
    at = lex_behind_blanks(lx, at);
    int to = lx->bytes[at] == '"'
                 ? at + lex_string_length(lx->bytes + at, lex_line_end(lx, at) - at)
                 : lex_behind_name(lx, at);
    return to > at && lx->bytes[lex_behind_blanks(lx, to)] == '{';
}

/* `{8, 16}` where a value was meant, or `{"a.bin": 0.7}`: files with weights. */
static bool is_set(struct lex *lx, struct token *t)
{
    int open = lex_behind_blanks(lx, t->at.to), at = lex_behind_blanks(lx, open + 1), end = open;
    bool string = lx->bytes[at] == '"';
    int behind = lex_behind_blanks(
        lx, string ? at + lex_string_length(lx->bytes + at, lex_line_end(lx, at) - at) : at);
    const char *name = lex_text_of(lx, lx->last.at),
               *weighted = string && lx->bytes[behind] && strchr(":=", lx->bytes[behind])
                               ? language->weighted_files(name)
                               : NULL;
    if ((!string && !lex_is_digit(lx->bytes[at])) ||
        (string && !weighted && lx->bytes[behind] != ',' && lx->bytes[behind] != '}'))
        return false;
    while (lx->bytes[end] && lx->bytes[end] != '\n' && lx->bytes[end] != '}') end++;
    if (lx->bytes[end] != '}') return false;
    lex_complain(lx, (struct span){lx->file, open, end + 1}, "a value is not written in { }",
                 weighted ? weighted : "alternatives are written 8 | 16, a list [8, 16]");
    lx->torn = true;
    lex_jump(lx, end + 1);
    *t = (struct token){LBRACE, {lx->file, open, open + 1}};
    lx->held = (struct token){RBRACE, {lx->file, end, end + 1}};
    return true;
}

/* What stands after the first word of an item, before any '='. False: dropped. */
static bool mend_head(struct lex *lx, struct token *t, bool newline)
{
    bool before_block = lx->bytes[lex_behind_blanks(lx, t->at.to)] == '{';
    bool named = lx->last.kind == NAME || lx->last.kind == STRING,
         one = lx->last.at.from == lx->first.at.from;
    if (!named) return true;
    if ((t->kind == COLON || t->kind == ASSIGN) && before_block && is_set(lx, t)) return true;
    if ((t->kind == COLON || t->kind == ASSIGN) && before_block) {
        if (!lx->json || t->kind == ASSIGN)
            lex_slip(lx, SLIP_BLOCK, t->at,
                     text_format("a block has no '%s' before its '{'", lex_text_of(lx, t->at)),
                     text_format("%s { … }", head_text(lx)));
        return false;
    }
    if ((t->kind == COLON || t->kind == ASSIGN) && one && names_block(lx, t->at.to)) {
        lex_slip(lx, SLIP_BLOCK, t->at,
                 text_format("a block has no '%s' before its name", lex_text_of(lx, t->at)),
                 text_format("%s %s { … }", head_text(lx), lex_rest_text(lx, t->at.to)));
        return false;
    }
    if ((t->kind == LPAR || t->kind == LBRACK) && !newline && lx->first.kind == NAME &&
        opens_block(lx, t)) {
        lex_slip(
            lx, SLIP_BLOCK, t->at,
            text_format("a block is written in { }, not in %s", t->kind == LPAR ? "( )" : "[ ]"),
            text_format("%s { … }", head_text(lx)));
        t->kind = LBRACE;
        return true;
    }
    if (t->kind == COLON && lex_is_yaml(lx, t)) return true;
    if (t->kind == COLON && (one || lx->before.kind == DOT)) {
        bool both = lx->bytes[t->at.to] == '=';
        if (!lx->json)
            lex_slip(lx, SLIP_COLON, t->at, "':' gives no value",
                     text_format("%s = %s", head_text(lx), lex_rest_text(lx, t->at.to + both)));
        if (both) return false;
        t->kind = ASSIGN;
    } else if (t->kind == EQ && lx->first.kind == NAME) {
        lex_slip(lx, SLIP_COMPARES, t->at, "'==' compares; an entry is written with '='", NULL);
        t->kind = ASSIGN;
    } else if (t->kind == NUMBER && one && head_text(lx)[0] != '"' &&
               !language->is_section(head_text(lx)) &&
               strspn(lex_text_of(lx, t->at), "0123456789_.eE-+kMGTi") ==
                   (size_t)(t->at.to - t->at.from) &&
               !newline) {
        lex_slip(lx, SLIP_NO_EQUALS, t->at,
                 text_format("'=' is missing before number '%s'", lex_text_of(lx, t->at)),
                 text_format("%s = %s", head_text(lx), lex_text_of(lx, t->at)));
        lx->held = *t;
        *t = (struct token){ASSIGN, {lx->file, t->at.from, t->at.from}};
    }
    return true;
}

/* 32,000: the commas become part of the number. */
static void mend_grouped(struct lex *lx, struct token *t)
{
    const char *bytes = lx->bytes;
    int to = t->at.to;
    while (bytes[to] == ',' && lex_is_digit(bytes[to + 1]) && lex_is_digit(bytes[to + 2]) &&
           lex_is_digit(bytes[to + 3]) && !lex_is_digit(bytes[to + 4]))
        to += 4;
    if (to == t->at.to) return;
    struct text grouped = {0};
    for (int i = t->at.from; i < to; i++)
        text_add(&grouped, "%c", bytes[i] == ',' ? '_' : bytes[i]);
    t->at.to = to;
    lex_slip(lx, SLIP_GROUPED, t->at, "digits are grouped by '_'", grouped.bytes);
    lex_jump(lx, to);
}

/* Whether `name =` stands before byte `at`. */
static bool is_value_of(const struct lex *lx, int at, const char *name)
{
    int n = (int)strlen(name);
    while (at > 0 && strchr(" \t=", lx->bytes[at - 1])) at--;
    return at >= n && !memcmp(lx->bytes + at - n, name, (size_t)n);
}

/* `8, 16, 32` and `"a.bin", "b.bin"`: more values of the same entry. */
static bool is_list(struct lex *lx, struct token *t)
{
    int next = lex_behind_blanks(lx, t->at.to);
    bool number = lx->last.kind == NUMBER && lex_is_digit(lx->bytes[next]),
         string = lx->last.kind == STRING && lx->bytes[next] == '"';
    if (lx->json || (!number && !string)) return false;
    int from = lx->last.at.from, to = from;
    while (lx->bytes[to] && !strchr(";}\n#", lx->bytes[to])) to++;
    while (strchr(" \t\r,", lx->bytes[to - 1])) to--;
    if (number && is_value_of(lx, from, "betas")) { /* value_wrong.c leaves its numbers to this */
        lex_slip(lx, SLIP_VALUES, (struct span){lx->file, from, to}, "a list is written in [ ]",
                 text_format("betas = [%s]", lex_text_of(lx, (struct span){lx->file, from, to})));
        lx->torn = true;
        t->kind = BAR;
        return true;
    }
    struct text t2 = {0};
    for (int i = from; i < to; i++)
        text_add(&t2, lx->bytes[i] == ',' && number ? " |" : "%c", lx->bytes[i]);
    lex_slip(lx, SLIP_VALUES, t->at,
             number ? "alternatives are separated by '|'" : "a list of strings is written in [ ]",
             number ? t2.bytes : text_format("[%s]", t2.bytes));
    lx->torn = true;
    t->kind = BAR;
    return true;
}

/* What stands after a finished value. */
static bool mend_behind_value(struct lex *lx, struct token *t, bool newline)
{
    const char *bytes = lx->bytes;
    if (t->kind == COMMA) {
        /* and that was said */
        bool called = lx->n_braces && bytes[lx->brace[lx->n_braces - 1].at.from] != '{';
        if (is_list(lx, t)) return true;
        if (!lx->json && !called)
            lex_slip(lx, SLIP_COMMA, t->at, "',' ends no entry",
                     "entries are separated by ';' or a new line, alternatives by '|'");
        t->kind = END;
        return true;
    }
    int next = lex_behind_blanks(lx, t->at.to);
    if ((t->kind == NAME || t->kind == STRING) && !newline &&
        ((bytes[next] == '=' && bytes[next + 1] != '=') || bytes[next] == ':')) {
        const char *name = lex_text_of(lx, t->at);
        lex_slip(lx, SLIP_ONE_LINE, t->at, text_format("'%s' cannot follow a finished value", name),
                 "entries are separated by ';' or a new line");
        lx->held = *t;
        *t = (struct token){END, {lx->file, lx->last.at.to, lx->last.at.to}};
    }
    return true;
}

/* `fsdp -> 16`, `fsdp => 16`; after a value the rest of the entry is left out. */
static bool mend_arrow(struct lex *lx, struct token *t)
{
    int end = t->at.to + 1;
    const char *sign = lex_text_of(lx, (struct span){lx->file, t->at.from, end});
    bool value = lx->in_value || lx->n_brackets;
    lex_complain(lx, (struct span){lx->file, t->at.from, end},
                 text_format("there is no operator '%s'", sign),
                 value ? "alternatives are written 1 | 2, ranges 1..4; how a rate falls is "
                         "schedule NAME { floor }"
                       : text_format("%s = %s", head_text(lx), lex_rest_text(lx, end)));
    while (value && lx->bytes[end] && !strchr(";}\n", lx->bytes[end])) end++;
    lx->torn |= value;
    lex_jump(lx, end);
    *t = (struct token){ASSIGN, {lx->file, t->at.from, t->at.from + 2}};
    return !value;
}

/* `micro-batch-size`: one name, and not the one that is meant. */
static void mend_dashes(struct lex *lx, struct token *t)
{
    int to = t->at.to;
    while (lx->bytes[to] == '-' &&
           (lex_is_letter(lx->bytes[to + 1]) || lex_is_digit(lx->bytes[to + 1])))
        to = lex_behind_name(lx, to + 1);
    bool model = !lex_is_idle(lx) && lx->first.at.from == lx->last.at.from &&
                 !strcmp(lex_text_of(lx, lx->first.at), "model");
    if (model && lx->bytes[to] == '/') { /* Qwen/Qwen3-8B */
        while (lx->bytes[to] && !strchr(" \t\r\n{;#", lx->bytes[to])) to++;
        t->at.to = to;
        lex_complain(lx, t->at, "a model is named by its family",
                     "model llama { … }; `planc import DIR -o FILE.plan` makes a plan of a Hugging "
                     "Face directory");
        lx->torn = true;
        lex_jump(lx, to);
        return;
    }
    if (to == t->at.to) return;
    t->at.to = to;
    const char *name = lex_text_of(lx, t->at), *guess = language->guess(name),
               *before = text_format("%.*s", (int)strcspn(name, "-"), name);
    const char *section = lex_is_idle(lx) ? "" : lex_text_of(lx, lx->first.at);
    bool named = language->is_label(section, before);
    struct text plain = {0};
    for (const char *p = name; *p; p++) text_add(&plain, "%c", *p == '-' ? '_' : *p);
    if (named) guess = text_format("%s %s", section, before);
    int sign = lex_behind_blanks(lx, to);
    /* `weight-decay = 0.1` is a key except for the sign */
    if (lex_is_idle(lx) && lx->bytes[sign] == '=' && language->has_key(NULL, plain.bytes)) {
        lex_complain(lx, t->at, text_format("'%s' is no name: names have no '-'", name),
                     text_format("%s = %s", plain.bytes, lex_rest_text(lx, sign + 1)));
        lx->torn = true;
        lex_jump(lx, to);
        return;
    }
    lex_complain(
        lx, t->at, text_format("'%s' is no name: names have no '-'", name),
        guess && (named || lex_is_idle(lx)) ? text_format("did you mean '%s'?", guess)
        : lex_is_idle(lx)
            ? plain.bytes
            : "a name is made of letters, digits and '_'; a title is written in double quotes");
    lx->torn = true;
    lex_jump(lx, to);
}

/* `"fsdp": 16`: a name in quotes. */
static void mend_quoted_name(struct lex *lx, struct token *t)
{
    int next = lex_behind_blanks(lx, t->at.to);
    const char *name = lex_text_of(lx, (struct span){lx->file, t->at.from + 1, t->at.to - 1});
    bool fits = t->at.to - t->at.from > 2 && lex_is_letter(name[0]) &&
                strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_") ==
                    strlen(name);
    if (!fits || !strchr("={:", lx->bytes[next]) || !lx->bytes[next]) return;
    lx->json = lx->bytes[next] == ':';
    if (lx->json)
        lex_slip(lx, SLIP_QUOTED_NAME, (struct span){lx->file, t->at.from, next + 1},
                 "this is JSON: a plan has names without quotes, '=' and ';'",
                 lx->bytes[lex_behind_blanks(lx, next + 1)] == '{'
                     ? text_format("%s { … }", name)
                     : text_format("%s = %s", name, lex_rest_text(lx, next + 1)));
    else
        lex_slip(lx, SLIP_QUOTED_NAME, t->at,
                 text_format("an entry or a block starts with a name, not with string %s",
                             lex_text_of(lx, t->at)),
                 text_format("without quotes: %s", name));
    t->kind = NAME;
}

/* `mesh` and its entries on the next lines, closed by a '}' that nothing opened. */
static bool is_headless(struct lex *lx, struct token *t)
{
    for (int i = 0; i < lx->headless.n; i++)
        if (lx->headless.item[i].head == lx->first.at.from) {
            struct span head = {lx->file, lx->first.at.from, lx->last.at.to};
            lex_complain(lx, head, "this block has no '{'",
                         text_format("%s {", lex_text_of(lx, head)));
            lx->held = *t;
            *t = (struct token){LBRACE, {lx->file, head.to, head.to}};
            return true;
        }
    return false;
}

bool lex_mend(struct lex *lx, struct token *t, bool newline)
{
    if (lx->stopped || lex_is_json(lx, t)) return true;
    if (lex_is_idle(lx)) {
        if (t->kind == LBRACK && lex_is_toml(lx, t)) return false;
        if (t->kind == MINUS && lex_is_dash(lx, t)) return false;
        if (t->kind == COMMA && lx->last.kind == RBRACE) {
            if (!lx->json)
                lex_slip(
                    lx, SLIP_COMMA, t->at, "',' ends no block",
                    "blocks and entries are separated by a new line, entries of one line by ';'");
            return false;
        }
        if (t->kind == STRING) mend_quoted_name(lx, t);
        if (t->kind == NAME && lx->bytes[t->at.to] == '-') mend_dashes(lx, t);
        return true;
    }
    if (newline && t->kind != LBRACE && !lx->in_value && is_headless(lx, t)) return true;
    if (lex_is_file(lx, t)) return true;
    if ((t->kind == MINUS || t->kind == ASSIGN) && lx->bytes[t->at.to] == '>')
        return mend_arrow(lx, t);
    if (lx->n_brackets) return true;
    if (t->kind == NAME && strchr("-/", lx->bytes[t->at.to]) && lx->bytes[t->at.to] &&
        !lx->in_value)
        mend_dashes(lx, t);
    if (t->kind == NUMBER && lx->in_value) mend_grouped(lx, t);
    if (!lx->in_value) return mend_head(lx, t, newline);
    return lex_ends_operand(lx->last.kind) ? mend_behind_value(lx, t, newline) : true;
}
