/* Between the scanner and the parser: where an entry ends. The language ends entries with lines, but not every line end
 * ends one; deciding that here keeps the grammar free of newlines (and of the conflicts that come with them). The same
 * place knows the brackets that are open, so it can say which one was forgotten, and resets them where a person would: a
 * '{', a '}', a ';', or a line that cannot go on what stands before it. Messages about order are worded here too. */
#include "lex.h"
#include "plan.tab.h"
#define YYSTYPE PLAN_STYPE
#define YYLTYPE PLAN_LTYPE
#include "plan.lex.h"

#include <stdlib.h>
#include <string.h>

enum { NONE = -1 };

void lex_start(struct lex *lx, int file)
{
    size_t n;
    const struct token none = { .kind = NONE };
    *lx = (struct lex){ .file = file, .pending = none, .last = none, .before = none, .unclosed = none };
    lx->bytes = source_bytes(file, &n);
    bool marked = n >= 3 && memcmp(lx->bytes, "\xef\xbb\xbf", 3) == 0; /* a byte order mark */
    lx->at = marked ? 3 : 0;
    if (raw_lex_init_extra(lx, &lx->scanner) != 0)
        bug("the scanner does not start");
    if (!raw__scan_bytes(lx->bytes + lx->at, (int)n - lx->at, lx->scanner))
        bug("the scanner does not take its text");
}

void lex_end(struct lex *lx)
{
    raw_lex_destroy(lx->scanner); /* and its buffer */
}

void lex_complain(struct lex *lx, struct span at, const char *message, const char *help)
{
    if (lx->stopped)
        return;
    lx->failed = true;
    struct diagnostic *d = complain(at, "%s", message);
    if (help)
        add_help(d, "%s", help);
}

void lex_too_deep(struct lex *lx, struct span at, const char *what)
{
    if (lx->stopped)
        return;
    lex_complain(lx, at, text_format("%s is nested too deeply", what), NULL);
    lx->stopped = true;
}

void lex_recovered(struct lex *lx)
{
    lx->n_brackets = 0;
    lx->unclosed.kind = NONE;
}

/* The newline rule ---------------------------------------------------------------------------------------------------- */

static bool is_infix(int kind)
{
    switch (kind) {
    case BAR: case COMMA: case DOT: case RANGE: case QUERY: case COLON: case PLUS: case MINUS: case STAR: case SLASH:
    case PERCENT: case EQ: case NE: case LT: case LE: case GT: case GE: case AND: case OR:
        return true;
    }
    return false;
}

static bool starts_operand(int kind)
{
    return kind == NAME || kind == NUMBER || kind == STRING;
}

static bool ends_operand(int kind)
{
    return starts_operand(kind) || kind == RPAR || kind == RBRACK;
}

/* Nothing is unfinished: an END here would end nothing. */
static bool is_idle(int kind)
{
    return kind == END || kind == LBRACE || kind == RBRACE || kind == NONE;
}

static struct token scan(struct lex *lx, bool *newline)
{
    struct token t;
    PLAN_STYPE value;
    do {
        t.at = (struct span){ lx->file, lx->at, lx->at };
        t.kind = raw_lex(&value, &t.at, lx->scanner);
        *newline |= t.kind == RAW_NEWLINE;
    } while (t.kind == RAW_NEWLINE);
    if (t.kind == END_OF_FILE)
        t.at = (struct span){ lx->file, lx->at, lx->at };
    return t;
}

static void close_brackets(struct lex *lx)
{
    if (lx->n_brackets)
        lx->unclosed = lx->bracket[lx->n_brackets - 1];
    lx->n_brackets = 0;
}

/* The next token, or the END that must come before it (the token then waits). */
static struct token next(struct lex *lx)
{
    if (lx->pending.kind != NONE) {
        struct token t = lx->pending;
        lx->pending.kind = NONE;
        return t;
    }
    bool newline = false;
    int last = lx->last.kind;
    struct token t = scan(lx, &newline);
    bool closes = t.kind == RBRACE || t.kind == END_OF_FILE;
    if (closes || t.kind == LBRACE || t.kind == END)
        close_brackets(lx);
    else if (newline && lx->n_brackets && ends_operand(last) && starts_operand(t.kind))
        close_brackets(lx); /* no expression goes on like this: a bracket was forgotten on the line above */
    if (is_idle(last) || t.kind == END)
        return t;
    bool ends = newline && !lx->n_brackets && t.kind != LBRACE && !is_infix(last) && last != NOT && !is_infix(t.kind);
    if (!ends && !closes)
        return t;
    lx->pending = t;
    return (struct token){ END, { lx->file, lx->last.at.to, lx->last.at.to } };
}

int plan_lex(PLAN_STYPE *value, PLAN_LTYPE *at, struct lex *lx)
{
    struct token t;
    *value = NULL;
again:
    t = lx->stopped ? (struct token){ END_OF_FILE, { lx->file, lx->at, lx->at } } : next(lx);
    switch (t.kind) {
    case LPAR: case LBRACK:
        if (lx->n_brackets == DEEPEST_EXPRESSION) {
            lex_too_deep(lx, t.at, "this expression");
            goto again;
        }
        lx->bracket[lx->n_brackets++] = t;
        break;
    case RPAR: case RBRACK:
        lx->n_brackets -= lx->n_brackets > 0;
        break;
    case LBRACE:
        if (lx->n_braces == DEEPEST_BLOCK) {
            lex_too_deep(lx, t.at, "this block");
            goto again;
        }
        lx->brace[lx->n_braces++] = t;
        break;
    case RBRACE:
        if (!lx->n_braces) {
            lex_complain(lx, t.at, "this '}' closes nothing", NULL);
            goto again;
        }
        lx->n_braces--;
        break;
    case END_OF_FILE:
        if (lx->n_braces && !lx->stopped) {
            struct token open = lx->brace[--lx->n_braces];
            if (!lx->failed)
                lex_complain(lx, open.at, "this '{' is never closed", NULL);
            lx->pending = t;
            t.kind = RBRACE;
        }
        break;
    }
    lx->before = lx->last;
    lx->last = t;
    *at = t.at;
    return t.kind;
}

/* What is wrong with the order ---------------------------------------------------------------------------------------- */

static const char *written(const struct lex *lx, const struct token *t)
{
    int n = t->at.to - t->at.from;
    return n > 40 ? text_format("%.*s…", 37, lx->bytes + t->at.from) : text_format("%.*s", n, lx->bytes + t->at.from);
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

/* "80 GiB": a unit that stands behind a blank. */
static bool is_apart(struct lex *lx)
{
    const struct token *number = &lx->before, *unit = &lx->last;
    if (number->kind != NUMBER || unit->kind != NAME)
        return false;
    const char *text = text_format("%s%s", written(lx, number), written(lx, unit));
    if (!number_has_unit(text))
        return false;
    lex_complain(lx, span_join(number->at, unit->at), "a unit follows its number without a blank", text);
    return true;
}

/* "92%" before the end of an entry. */
static bool is_percentage(struct lex *lx)
{
    const struct token *percent = &lx->before;
    int to = percent->at.from, from = to;
    while (from > 0 && strchr("0123456789._", lx->bytes[from - 1]))
        from--;
    if (percent->kind != PERCENT || from == to)
        return false;
    double part = strtod(text_format("%.*s", to - from, lx->bytes + from), NULL) / 100;
    lex_complain(lx, (struct span){ lx->file, from, percent->at.to }, "'%' divides and keeps the rest; a part is written as a fraction", text_number(part));
    return true;
}

static const char separated[] = "entries are separated by ';' or a new line";

static void unexpected_in_value(struct lex *lx, const struct expectation *e)
{
    const struct token *t = &lx->last;
    if (is_apart(lx))
        return;
    const char *wanted = e->colon ? "':'" : lx->unclosed.kind == LBRACK || (lx->n_brackets && lx->bracket[lx->n_brackets - 1].kind == LBRACK) ? "']'" : "')'";
    bool compares = t->kind == EQ || t->kind == NE || t->kind == LT || t->kind == LE || t->kind == GT || t->kind == GE;
    if (compares && e->sign) {
        lex_complain(lx, t->at, "comparisons do not chain", "join two of them with 'and'");
    } else if (t->kind == RANGE && e->sign) {
        lex_complain(lx, t->at, "ranges do not chain", NULL);
    } else if (e->colon) {
        lex_complain(lx, t->at, "the ':' that belongs to '?' is missing", "write condition ? value : other value");
    } else if (e->closer) {
        struct token open = lx->unclosed.kind != NONE ? lx->unclosed
                          : lx->n_brackets ? lx->bracket[lx->n_brackets - 1] : (struct token){ .kind = NONE };
        bool ended = t->kind == END || t->kind == END_OF_FILE || t->kind == LBRACE || t->kind == RBRACE;
        struct diagnostic *d = complain(t->at, ended ? "%s is missing" : "%s or an operator is missing before %s",
                                        e->comma && !ended ? text_format("',', %s", wanted) : wanted, named(lx, t));
        lx->failed = true;
        if (open.kind != NONE)
            add_note(d, open.at, "'%s' was opened here", written(lx, &open));
        if (t->kind == COMMA && open.kind == LPAR)
            add_help(d, "a list stands in [ ]: [0.9, 0.95]");
    } else {
        lex_complain(lx, t->at, text_format("%s cannot follow a finished value", named(lx, t)),
                     t->kind == COMMA ? "entries are separated by ';' or a new line, alternatives by '|'" : t->kind == NAME ? separated : NULL);
    }
}

static void unexpected_after_name(struct lex *lx, const struct expectation *e)
{
    const struct token *t = &lx->last;
    const char *text = written(lx, t);
    bool number = t->kind == NUMBER;
    if (number && e->assign && lx->before.kind == NAME && strspn(text, "0123456789_.") == strlen(text))
        lex_complain(lx, t->at, text_format("'=' is missing before number '%s'", text),
                     text_format("%s = %s", written(lx, &lx->before), text));
    else if (number)
        lex_complain(lx, t->at, text_format("'%s' is not a name", text), "a name starts with a letter or '_'; a title stands in double quotes");
    else if (t->kind == END)
        lex_complain(lx, t->at, "'=' and a value are missing", NULL);
    else if (t->kind == EQ)
        lex_complain(lx, t->at, "'==' compares; an entry is written with '='", NULL);
    else if (t->kind == COLON)
        lex_complain(lx, t->at, "':' gives no value", text_format("an entry is written %s = value", lx->before.kind == NAME ? written(lx, &lx->before) : "name"));
    else if (t->kind == MINUS)
        lex_complain(lx, t->at, "a name has no '-'", "names are made of letters, digits and '_'; what is more stands in double quotes");
    else if (t->kind == ASSIGN)
        lex_complain(lx, t->at, "'=' stands after one name", "put '.' between the names of a path, ';' between entries, { } around those of a block");
    else
        lex_complain(lx, t->at, text_format("%s cannot stand here: '=' or '{' was expected", named(lx, t)),
                     t->kind == COMMA ? separated : t->kind == SLASH || t->kind == DOT ? "a condition stands in ( ), the name of a file in double quotes" : NULL);
}

void lex_unexpected(struct lex *lx, const struct expectation *e)
{
    const struct token *t = &lx->last;
    if (lx->stopped || (t->kind == END_OF_FILE && lx->failed))
        return;
    if (e->value) {
        if (is_percentage(lx))
            return;
        bool missing = t->kind == END || t->kind == END_OF_FILE || is_infix(t->kind) || t->kind == RPAR || t->kind == RBRACK;
        if (missing)
            lex_complain(lx, t->at, text_format("a value is missing before %s", named(lx, t)), NULL);
        else
            lex_complain(lx, t->at, text_format("%s cannot stand where a value is expected", named(lx, t)), NULL);
    } else if (e->sign || e->closer || e->colon) {
        unexpected_in_value(lx, e);
    } else if (e->assign || e->brace) {
        unexpected_after_name(lx, e);
    } else if (e->name && e->end) {
        const char *text = written(lx, t), *help = NULL;
        size_t n = strlen(text);
        if (t->kind == STRING && n > 2 && strspn(text + 1, "abcdefghijklmnopqrstuvwxyz_") == n - 2)
            help = text_format("without quotes: %.*s", (int)n - 2, text + 1);
        else if (t->kind == STRING && !lx->n_braces)
            help = "plan \"title\" { … }";
        else if (t->kind == COMMA)
            help = separated;
        lex_complain(lx, t->at, text_format("an entry or a block starts with a name, not with %s", named(lx, t)), help);
    } else if (e->name) {
        lex_complain(lx, t->at, text_format("a name is expected after '.', not %s", named(lx, t)), NULL);
    } else {
        lex_complain(lx, t->at, text_format("%s cannot stand here", named(lx, t)), NULL);
    }
}
