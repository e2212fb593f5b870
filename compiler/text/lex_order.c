/* Messages for tokens in a wrong order. The parser says what it could have taken, lex.c what came
 * and which bracket is open; here that becomes a sentence with a fix. Mistakes that have one
 * meaning never come here: lex_slips.c reports and repairs them, and the parser continues. */
#include "text/lex.h"
#include "text/lex_slips.h"
#include "text/language.h"
#include "plan.tab.h"

#include <stdlib.h>
#include <string.h>

static const char *written(const struct lex *lx, const struct token *t)
{
    int n = t->at.to - t->at.from;
    return n > 40 ? text_format("%.*s…", 37, lx->bytes + t->at.from)
                  : text_format("%.*s", n, lx->bytes + t->at.from);
}

/* The token as a message names it: "number '2048'", "the end of the entry". */
static const char *named(const struct lex *lx, const struct token *t)
{
    switch (t->kind) {
    case END_OF_FILE: return "the end of the file";
    case END: return "the end of the entry";
    case NAME: return text_format("name '%s'", written(lx, t));
    case NUMBER: return text_format("number '%s'", written(lx, t));
    case STRING: return text_format("string %s", written(lx, t));
    }
    return text_format("'%s'", written(lx, t));
}

/* "80 GiB": a unit that stands after a blank. */
static bool is_apart(struct lex *lx)
{
    const struct token *number = &lx->before, *unit = &lx->last;
    if (number->kind != NUMBER || unit->kind != NAME) return false;
    const char *text = text_format("%s%s", written(lx, number), written(lx, unit));
    if (!number_has_unit(text)) return false;
    lex_complain(lx, span_join(number->at, unit->at), "a unit follows its number without a blank",
                 text);
    return true;
}

/* "92%" before the end of an entry. */
static bool is_percentage(struct lex *lx)
{
    const struct token *percent = &lx->before;
    int to = percent->at.from, from = to;
    while (from > 0 && strchr("0123456789._", lx->bytes[from - 1])) from--;
    if (percent->kind != PERCENT || from == to) return false;
    double part = strtod(text_format("%.*s", to - from, lx->bytes + from), NULL) / 100;
    lex_complain(lx, (struct span){lx->file, from, percent->at.to},
                 "'%' divides and keeps the rest; a part is written as a fraction",
                 text_number(part));
    return true;
}

static const char separated[] = "entries are separated by ';' or a new line";

static const char mixture[] =
    "a file has no weight; a source has: data { source \"web\" { files = \"web-*.bin\";  "
    "weight = 0.7 } … }";

/* Whether a key of that name is given files. */
static bool is_of_files(const char *key)
{
    static const char *const keys[] = {"train", "validation", "files", "path", "data_path"};
    for (size_t i = 0; i < COUNT_OF(keys); i++)
        if (!strcmp(key, keys[i])) return true;
    return false;
}

/* `"a.bin" 0.7`, `"a.bin" = 0.7`, `"a.bin": 0.7`, `("a.bin", 0.7)` where an entry is expected. */
static bool has_weight(struct lex *lx, const struct token *t)
{
    int at = t->at.from;
    if (t->kind == LPAR) at = lex_behind_blanks(lx, t->at.to);
    if (lx->n_braces < 2 || lx->bytes[at] != '"') return false;
    at++;
    while (lx->bytes[at] && !strchr("\"\n", lx->bytes[at])) at++;
    if (lx->bytes[at] != '"') return false;
    at = lex_behind_blanks(lx, at + 1);
    if (lx->bytes[at] && strchr("=:,", lx->bytes[at])) at = lex_behind_blanks(lx, at + 1);
    return lx->bytes[at] && strchr("0123456789.", lx->bytes[at]);
}

static void unexpected_in_value(struct lex *lx, const struct expectation *e)
{
    const struct token *t = &lx->last;
    if (is_apart(lx)) return;
    const char *wanted = e->colon ? "':'"
                         : lx->unclosed.kind == LBRACK ||
                                 (lx->n_brackets && lx->bracket[lx->n_brackets - 1].kind == LBRACK)
                             ? "']'"
                             : "')'";
    bool compares = t->kind == EQ || t->kind == NE || t->kind == LT || t->kind == LE ||
                    t->kind == GT || t->kind == GE;
    if (compares && e->sign) {
        lex_complain(lx, t->at, "comparisons do not chain", "join two of them with 'and'");
    } else if (t->kind == RANGE && e->sign) {
        lex_complain(lx, t->at, "ranges do not chain", NULL);
    } else if (e->colon) {
        lex_complain(lx, t->at, "the ':' that belongs to '?' is missing",
                     "write condition ? value : other value");
    } else if (t->kind == COLON && lx->before.kind == NUMBER) {
        lex_complain(lx, t->at, "':' makes no range",
                     text_format("a range is written %s..%.*s", written(lx, &lx->before),
                                 (int)strspn(lx->bytes + t->at.to, "0123456789_"),
                                 lx->bytes + t->at.to));
    } else if (t->kind == ASSIGN && e->closer && lx->n_brackets &&
               lx->bracket[lx->n_brackets - 1].kind == LPAR) {
        lex_complain(lx, t->at, "'=' gives a value and compares nothing", "write '=='");
    } else if (e->closer) {
        struct token open = lx->unclosed.kind != NO_TOKEN ? lx->unclosed
                            : lx->n_brackets              ? lx->bracket[lx->n_brackets - 1]
                                                          : (struct token){.kind = NO_TOKEN};
        bool ended =
            t->kind == END || t->kind == END_OF_FILE || t->kind == LBRACE || t->kind == RBRACE;
        struct diagnostic *d =
            complain(t->at, ended ? "%s is missing" : "%s or an operator is missing before %s",
                     e->comma && !ended ? text_format("',', %s", wanted) : wanted, named(lx, t));
        lx->failed = true;
        if (open.kind != NO_TOKEN) add_note(d, open.at, "'%s' was opened here", written(lx, &open));
        if (t->kind == COMMA && open.kind == LPAR && lx->first.kind == NAME &&
            !strcmp(written(lx, &lx->first), "require"))
            add_help(d, "require (batch.local <= 4) \"why\"");
        else if ((t->kind == COMMA && open.kind == LPAR && lx->before.kind == STRING) ||
                 (open.kind == LBRACK && lx->before.kind == STRING &&
                  (t->kind == NUMBER || t->kind == COLON || t->kind == ASSIGN)))
            add_help(d, "%s", mixture);
        else if (t->kind == COMMA && open.kind == LPAR)
            add_help(d, "a list is written in [ ]: [0.9, 0.95]");
        else if (t->kind == COLON && open.kind == LPAR && lx->before.kind == NAME)
            add_help(d, "an argument by name: %s = value", written(lx, &lx->before));
    } else if (t->kind == NAME && !strcmp(written(lx, t), "if")) {
        lex_complain(lx, t->at, "'if' cannot follow a finished value",
                     "a choice is written condition ? value : other");
    } else if (t->kind == NAME && lx->before.kind == NUMBER) {
        lex_complain(lx, t->at,
                     text_format("'%s' cannot follow the number '%s'", written(lx, t),
                                 written(lx, &lx->before)),
                     is_of_files(written(lx, &lx->first))
                         ? mixture
                         : "a unit has no blank before it, a comment starts with '#', entries are "
                           "separated by ';' or a new line");
    } else {
        lex_complain(lx, t->at, text_format("%s cannot follow a finished value", named(lx, t)),
                     t->kind == COMMA
                         ? "entries are separated by ';' or a new line, alternatives by '|'"
                     : t->kind == NAME ? separated
                                       : NULL);
    }
}

/* "fsdp = 64": the first key of a section that counts something. */
static const char *first_whole(const char *section, const char *number)
{
    const char *key = number ? language->first_whole(section) : NULL;
    return key ? text_format("%s = %s", key, number) : "key = value";
}

/* `mesh 64`, `cluster h100 * 8`, `mesh fsdp = 64`. */
static void said_of_section(struct lex *lx, const struct token *t, const char *path)
{
    bool second =
        lx->last.kind != NAME && lx->before.kind == NAME && lx->before.at.from != lx->first.at.from;
    const char *name = second ? written(lx, &lx->before) : NULL;
    bool keyed = name && t->kind == ASSIGN && language->has_key(path, name);
    bool times = !strcmp(path, "cluster") && name && t->kind == NUMBER &&
                 (!strcmp(name, "x") || !strcmp(name, "X"));
    int machine = lx->first.at.to + (int)strspn(lx->bytes + lx->first.at.to, " \t"),
        n = (int)strcspn(lx->bytes + machine, " \t");
    long long devices = times ? atoll(written(lx, t)) : 0;
    if (times && machine + n < lx->before.at.from) { /* `cluster h100 x 64` */
        lex_complain(
            lx, t->at, "what a cluster says is written in { }",
            devices > 8 && devices % 8 == 0
                ? text_format("cluster %.*s { nodes = %lld }: %lld devices, where a node has eight",
                              n, lx->bytes + machine, devices / 8, devices)
                : text_format("cluster %.*s { nodes = %s }", n, lx->bytes + machine,
                              written(lx, t)));
        return;
    }
    const char *head =
        language->has_label(path)
            ? text_format("%s %s", path,
                          name && t->kind != ASSIGN ? written(lx, &lx->before) : "NAME")
            : path;
    if (keyed)
        lex_complain(lx, t->at, "'=' comes after one name",
                     text_format("%s { %s = … }, or %s.%s = …", path, name, path, name));
    else
        lex_complain(lx, t->at,
                     text_format("%s is not allowed here: what %s says is written in { }",
                                 named(lx, t), path),
                     text_format("%s { %s }: it has %s", head,
                                 first_whole(path, t->kind == NUMBER ? written(lx, t) : NULL),
                                 language->keys(path)));
}

static bool is_declared(const char *word)
{
    static const char *const words[] = {"let",   "var",    "const",  "set", "def",
                                        "int",   "float",  "string", "str", "export",
                                        "local", "global", "auto",   "val"};
    for (size_t i = 0; i < COUNT_OF(words); i++)
        if (!strcmp(word, words[i])) return true;
    return false;
}

static void unexpected_after_name(struct lex *lx, const struct expectation *e)
{
    const struct token *t = &lx->last;
    const char *text = written(lx, t);
    bool number = t->kind == NUMBER;
    const char *first = lx->first.kind == NAME ? written(lx, &lx->first) : "";
    bool digits = number && strspn(text, "0123456789_.") == strlen(text);
    if (language->is_section(first) && (digits || t->kind == STAR || t->kind == ASSIGN)) {
        said_of_section(lx, t, first);
        return;
    }
    if (!strcmp(first, "require") || !strcmp(first, "when")) {
        lex_complain(lx, t->at, text_format("a condition of %s is written in ( )", first),
                     first[0] == 'r' ? "require (batch.local <= 4) \"why\""
                                     : "when (condition) { … }");
        return;
    }
    if (digits && e->assign && lx->before.kind == NAME)
        lex_complain(lx, t->at, text_format("'=' is missing before number '%s'", text),
                     text_format("%s = %s", written(lx, &lx->before), text));
    else if (number)
        lex_complain(lx, t->at, text_format("'%s' is not a name", text),
                     "a name starts with a letter or '_'; a title is written in double quotes");
    else if (t->kind == END)
        lex_complain(lx, t->at, "'=' and a value are missing", NULL);
    else if (t->kind == EQ)
        lex_complain(lx, t->at, "'==' compares; an entry is written with '='", NULL);
    else if (t->kind == COLON)
        lex_complain(lx, t->at, "':' gives no value",
                     text_format("an entry is written %s = value",
                                 lx->before.kind == NAME ? written(lx, &lx->before) : "name"));
    else if (t->kind == MINUS)
        lex_complain(
            lx, t->at, "a name has no '-'",
            "names are made of letters, digits and '_'; other text is written in double quotes");
    else if (t->kind == ASSIGN && is_declared(first))
        lex_complain(
            lx, lx->first.at,
            text_format("'%s' declares nothing: an entry is its name and its value", first),
            text_format("%s = …; outside the plan that is a constant", written(lx, &lx->before)));
    else if (t->kind == ASSIGN)
        lex_complain(lx, t->at, "'=' comes after one name",
                     "put '.' between the names of a path, ';' between entries, { } around those "
                     "of a block");
    else
        lex_complain(lx, t->at,
                     text_format("%s is not allowed here: '=' or '{' was expected", named(lx, t)),
                     t->kind == COMMA ? separated
                     : t->kind == SLASH || t->kind == DOT
                         ? "a condition is written in ( ), the name of a file in double quotes"
                         : NULL);
}

void lex_unexpected(struct lex *lx, const struct expectation *e)
{
    const struct token *t = &lx->last;
    if (lx->stopped || (t->kind == END_OF_FILE && lx->failed)) return;
    lx->torn = true;
    if (e->value) {
        if (is_percentage(lx)) return;
        bool missing = t->kind == END || t->kind == END_OF_FILE || lex_is_infix(t->kind) ||
                       t->kind == RPAR || t->kind == RBRACK;
        if (missing)
            lex_complain(lx, t->at, text_format("a value is missing before %s", named(lx, t)),
                         NULL);
        else
            lex_complain(lx, t->at,
                         text_format("%s is not allowed where a value is expected", named(lx, t)),
                         NULL);
    } else if (e->sign || e->closer || e->colon) {
        unexpected_in_value(lx, e);
    } else if (e->assign || e->brace) {
        unexpected_after_name(lx, e);
    } else if (e->name && e->end) {
        const char *text = written(lx, t), *help = NULL;
        size_t n = strlen(text);
        if (t->kind == STRING && !lx->n_braces)
            help = text_format("plan %s { … }", text);
        else if (has_weight(lx, t))
            help = mixture;
        else if (t->kind == NUMBER || (t->kind == STRING && strpbrk(text, "./*")))
            help = text_format("an entry is written name = %s", text);
        else if (t->kind == STRING && n > 2 &&
                 strspn(text + 1, "abcdefghijklmnopqrstuvwxyz_") == n - 2)
            help = text_format("without quotes: %.*s", (int)n - 2, text + 1);
        else if (t->kind == COMMA)
            help = separated;
        else if (t->kind == LBRACE) /* the parser has not counted it yet, lex.c has */
            help = lx->n_braces < 2 ? "plan \"title\" { … }" : "mesh { … }";
        lex_complain(
            lx, t->at,
            t->kind == LBRACE
                ? "this block has no name"
                : text_format("an entry or a block starts with a name, not with %s", named(lx, t)),
            help);
    } else if (e->name) {
        lex_complain(lx, t->at, text_format("a name is expected after '.', not %s", named(lx, t)),
                     NULL);
    } else {
        lex_complain(lx, t->at, text_format("%s is not allowed here", named(lx, t)), NULL);
    }
}
