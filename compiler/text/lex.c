/* Between the scanner and the parser: where an entry ends. Entries end with lines, but not every
 * line end ends one; deciding that here keeps newlines, and the conflicts that they cause, out of
 * the grammar. This file also knows the open brackets. So it can say which one is missing, and it
 * resets them at a '{', a '}', a ';', or a line that cannot continue the one before it. lex_order.c
 * words the errors about the order of tokens; lex_slips.c and lex_braces.c repair mistakes on the
 * way. */
#include "text/lex.h"
#include "plan.tab.h"
#define YYSTYPE PLAN_STYPE
#define YYLTYPE PLAN_LTYPE
#include "plan.lex.h"

#include <string.h>

void lex_start(struct lex *lx, int file)
{
    size_t n;
    const struct token none = {.kind = NO_TOKEN};
    *lx = (struct lex){.file = file,
                       .pending = none,
                       .held = none,
                       .last = none,
                       .before = none,
                       .first = none,
                       .unclosed = none};
    lx->bytes = source_bytes(file, &n);
    bool marked = n >= 3 && !memcmp(lx->bytes, "\xef\xbb\xbf", 3); /* a byte order mark */
    lx->at = marked ? 3 : 0;
    if (raw_lex_init_extra(lx, &lx->scanner) != 0) bug("the scanner does not start");
    if (!raw__scan_bytes(lx->bytes + lx->at, (int)n - lx->at, lx->scanner))
        bug("the scanner does not take its text");
    lex_look_for_braces(lx, (int)n);
}

/* "the same in lines 4, 5 and 9", at the first of its kind. */
static void count_slips(struct slips *s)
{
    enum { SHOWN = 5 };
    struct text t = {0};
    int n = 0;
    for (int i = 0; i < s->line.n; i++) {
        bool again = s->line.item[i] == (i ? s->line.item[i - 1] : s->first_line);
        if (!again && n++ < SHOWN) text_add(&t, "%s%d", n > 1 ? ", " : "", s->line.item[i]);
    }
    if (n)
        add_help(s->said, "the same in line%s %s%s", n > 1 ? "s" : "", t.bytes,
                 n > SHOWN ? text_format(" and %d more", n - SHOWN) : "");
}

void lex_end(struct lex *lx)
{
    for (int i = 0; i < SLIP_COUNT; i++) count_slips(&lx->slip[i]);
    raw_lex_destroy(lx->scanner); /* and its buffer */
}

/* Copies what is left of the text, so it is for mistakes only. */
void lex_jump(struct lex *lx, int to)
{
    enum { MOST = 1000 };
    size_t n;
    source_bytes(lx->file, &n);
    if (++lx->jumps > MOST) { /* a text of nothing but slips: enough was said */
        lx->stopped = lx->torn = true;
        return;
    }
    raw_pop_buffer_state(lx->scanner);
    lx->at = to;
    if (!raw__scan_bytes(lx->bytes + to, (int)n - to, lx->scanner))
        bug("the scanner does not take its text");
}

void lex_slip(struct lex *lx, enum slip which, struct span at, const char *message,
              const char *help)
{
    struct slips *s = &lx->slip[which];
    int line, column;
    if (lx->stopped) return;
    source_place(lx->file, at.from, &line, &column);
    if (s->said) {
        PUSH(&s->line, line);
        return;
    }
    s->first_line = line;
    s->said = complain(at, "%s", message);
    if (help) add_help(s->said, "%s", help);
}

void lex_complain(struct lex *lx, struct span at, const char *message, const char *help)
{
    if (lx->stopped) return;
    lx->failed = true;
    struct diagnostic *d = complain(at, "%s", message);
    if (help) add_help(d, "%s", help);
}

void lex_too_deep(struct lex *lx, struct span at, const char *what)
{
    if (lx->stopped) return;
    lex_complain(lx, at, text_format("%s is nested too deeply", what), NULL);
    lx->stopped = lx->torn = true;
}

void lex_recovered(struct lex *lx)
{
    lx->n_brackets = 0;
    lx->unclosed.kind = NO_TOKEN;
}

/* ── The newline rule ────────────────────────────────────────────────────────── */

bool lex_is_infix(int kind)
{
    switch (kind) {
    case BAR:
    case COMMA:
    case DOT:
    case RANGE:
    case QUERY:
    case COLON:
    case PLUS:
    case MINUS:
    case STAR:
    case SLASH:
    case PERCENT:
    case EQ:
    case NE:
    case LT:
    case LE:
    case GT:
    case GE:
    case AND:
    case OR: return true;
    }
    return false;
}

static bool starts_operand(int kind) { return kind == NAME || kind == NUMBER || kind == STRING; }

bool lex_ends_operand(int kind) { return starts_operand(kind) || kind == RPAR || kind == RBRACK; }

bool lex_is_idle(const struct lex *lx)
{
    int kind = lx->last.kind;
    return kind == END || kind == LBRACE || kind == RBRACE || kind == NO_TOKEN;
}

static struct token scan(struct lex *lx, bool *newline)
{
    struct token t;
    PLAN_STYPE value;
    do {
        t.at = (struct span){lx->file, lx->at, lx->at};
        t.kind = raw_lex(&value, &t.at, lx->scanner);
        *newline |= t.kind == RAW_NEWLINE;
    } while (t.kind == RAW_NEWLINE);
    if (t.kind == END_OF_FILE) t.at = (struct span){lx->file, lx->at, lx->at};
    return t;
}

static void close_brackets(struct lex *lx)
{
    if (lx->n_brackets) lx->unclosed = lx->bracket[lx->n_brackets - 1];
    lx->n_brackets = 0;
}

/* A brace that lex_braces.c found to be missing before a byte, or to be too much there. */
static const struct mended_brace *mended_at(struct lex *lx, int at, bool supplied)
{
    const struct mended_brace *m = lx->mended < lx->mend.n ? &lx->mend.item[lx->mended] : NULL;
    if (!m || lx->stopped || m->supplied != supplied || (supplied ? m->at > at : m->at != at))
        return NULL;
    lx->mended++;
    struct diagnostic *d = complain(
        m->brace, supplied ? "this '{' is never closed"
                           : text_format("this '}' is one too many: it ends the %s", m->ends));
    add_note(d, m->accomplice, "%s",
             supplied ? "a '}' is missing before this"
                      : text_format("the %s goes on here", m->ends));
    return m;
}

/* The next token of the text, mended. */
static struct token scan_mended(struct lex *lx, bool *newline)
{
    for (;;) {
        struct token t = scan(lx, newline);
        if (mended_at(lx, t.at.from, true)) {
            lx->held = t;
            return (struct token){RBRACE, {lx->file, t.at.from, t.at.from}};
        }
        if ((t.kind != RBRACE || !mended_at(lx, t.at.from, false)) && lex_mend(lx, &t, *newline))
            return t;
    }
}

static struct token waiting(struct token *from)
{
    struct token t = *from;
    from->kind = NO_TOKEN;
    return t;
}

static bool continues(int last, int kind)
{
    return kind == LBRACE || lex_is_infix(last) || last == NOT || lex_is_infix(kind);
}

/* The next token, or the END that must come before it (the token then waits). */
static struct token next(struct lex *lx)
{
    if (lx->pending.kind != NO_TOKEN) return waiting(&lx->pending);
    bool newline = false, held = lx->held.kind != NO_TOKEN;
    int last = lx->last.kind;
    struct token t = held ? waiting(&lx->held) : scan_mended(lx, &newline);
    if (held && mended_at(lx, t.at.from, true)) {
        lx->held = t;
        t = (struct token){RBRACE, {lx->file, t.at.from, t.at.from}};
    }
    bool closes = t.kind == RBRACE || t.kind == END_OF_FILE;
    if (closes || t.kind == LBRACE || t.kind == END)
        close_brackets(lx);
    else if (newline && lx->n_brackets && lex_ends_operand(last) && starts_operand(t.kind))
        /* no expression goes on like this: a bracket was forgotten on the line above */
        close_brackets(lx);
    if (lex_is_idle(lx) || t.kind == END) return t;
    bool nameless = newline && t.kind == LBRACE && lx->first.kind == NAME &&
                    lx->first.at.to - lx->first.at.from == 3 &&
                    !memcmp(lx->bytes + lx->first.at.from, "use", 3); /* a use has no block */
    if (!closes && !nameless && (!newline || lx->n_brackets || continues(last, t.kind))) return t;
    lx->pending = t;
    return (struct token){END, {lx->file, lx->last.at.to, lx->last.at.to}};
}

/* What never came: the innermost block that is open, and how many more are. */
static void complain_of_open(struct lex *lx)
{
    struct diagnostic *d = complain(lx->brace[lx->n_braces - 1].at, "this '{' is never closed");
    for (int i = lx->n_braces - 2; i >= 0 && i > lx->n_braces - 5; i--)
        add_note(d, lx->brace[i].at, "nor is this one");
    lx->failed = lx->torn = true;
}

static void remember(struct lex *lx, struct token t)
{
    if (lex_is_idle(lx)) {
        lx->first = t;
        lx->in_value = false;
    }
    lx->in_value |= t.kind == ASSIGN && lx->n_brackets == 0;
    lx->before = lx->last;
    lx->last = t;
}

int plan_lex(PLAN_STYPE *value, PLAN_LTYPE *at, struct lex *lx)
{
    struct token t;
    *value = NULL;
again:
    t = lx->stopped ? (struct token){END_OF_FILE, {lx->file, lx->at, lx->at}} : next(lx);
    switch (t.kind) {
    case LPAR:
    case LBRACK:
        if (lx->n_brackets == DEEPEST_EXPRESSION) {
            lex_too_deep(lx, t.at, "this expression");
            goto again;
        }
        lx->bracket[lx->n_brackets++] = t;
        break;
    case RPAR:
    case RBRACK:
        if (!lx->n_brackets && lx->n_braces &&
            lx->bytes[lx->brace[lx->n_braces - 1].at.from] == (t.kind == RPAR ? '(' : '[')) {
            t.kind = RBRACE; /* of a block that was opened with a bracket */
            if (!lex_is_idle(lx)) {
                lx->pending = t;
                t = (struct token){END, {lx->file, lx->last.at.to, lx->last.at.to}};
            } else {
                lx->n_braces--;
            }
            break;
        }
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
            if (!lx->unfinished) complain_of_open(lx);
            lx->unfinished = true;
            lx->n_braces--;
            lx->pending = t;
            t.kind = RBRACE;
        }
        break;
    }
    remember(lx, t);
    *at = t.at;
    return t.kind;
}
