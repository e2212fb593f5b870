/* The canonical layout of a plan. The author decides where lines break and what comments say;
 * everything else (spaces, indentation, blank lines, the column of comments beside code) has one
 * form. The text is laid out from its tokens, not from the tree, so nothing can be lost; the tokens
 * of the result are compared with those of the input before it is returned. */
#include "text/lex.h"
#include "plan.tab.h"

#include <string.h>

enum {
    INDENT = 4,
    COMMENT = 52 /* the column of comments beside code */,
    BESIDE = 4 /* or so much after longer code */
};

/* A token, and what stands between it and the one before. */
struct piece {
    struct token token;
    bool newline;                /* a line end before it */
    VECTOR(struct span) comment; /* whole-line comments before it */
    struct span beside;          /* the comment on the line of the one before */
};

struct line {
    int indent;
    const char *code, *comment;
    bool blank;
};

/* What is open: where its items begin, and how far the line that opened it was indented. */
struct opener {
    int kind, column, line_indent;
    bool filled, head;
};

struct format {
    const char *bytes;
    VECTOR(struct piece) piece;
    VECTOR(struct line) line;
    VECTOR(struct opener) open;
    struct text now; /* the line that is being written */
    int indent;
    bool blank; /* before it */
    bool head;  /* in a block's head: a parenthesis is a label and not a call */
    bool bare;  /* the item is a name and nothing else */
};

/* ── Tokens ──────────────────────────────────────────────────────────────────── */

static void read_gap(struct format *f, struct piece *p, int from, int to)
{
    int ends = 0;
    for (int i = from; i < to; i++) {
        ends += f->bytes[i] == '\n';
        if (f->bytes[i] == '#') {
            struct span at = {p->token.at.file, i, i};
            while (i < to && f->bytes[i] != '\n') i++;
            for (at.to = i--; strchr(" \t\r", f->bytes[at.to - 1]);) at.to--;
            if (ends == 0 && from > 0)
                p->beside = at;
            else
                PUSH(&p->comment, at);
        }
    }
    p->newline = ends > 0 || p->comment.n > 0;
}

/* The tokens of a source, with the ends of entries that are written or understood. */
static void read_pieces(struct format *f, int file)
{
    struct lex *lx = TAKE(struct lex);
    lex_start(lx, file);
    f->bytes = lx->bytes;
    int from = lx->at;
    for (bool more = true; more;) {
        struct piece p = {0};
        PLAN_STYPE value;
        p.token.kind = plan_lex(&value, &p.token.at, lx);
        more = p.token.kind != END_OF_FILE;
        read_gap(f, &p, from, p.token.at.from);
        from = p.token.at.to;
        PUSH(&f->piece, p);
    }
    lex_end(lx);
}

static bool is_written(const struct piece *p) { return p->token.at.to > p->token.at.from; }
static bool ends_value(int kind)
{
    return kind == NAME || kind == NUMBER || kind == STRING || kind == RPAR || kind == RBRACK;
}
static bool opens(int kind) { return kind == LBRACE || kind == LPAR || kind == LBRACK; }
static bool closes(int kind) { return kind == RBRACE || kind == RPAR || kind == RBRACK; }
static bool begins_item(int before)
{
    return before == END || before == LBRACE || before == RBRACE || before < 0;
}

/* ── Lines ───────────────────────────────────────────────────────────────────── */

static int columns(const char *text)
{
    int n = 0;
    for (; *text; text++) n += ((unsigned char)*text & 0xc0) != 0x80;
    return n;
}

static void end_line(struct format *f, struct span comment)
{
    if (!f->now.length && !comment.file) return;
    const char *beside =
        comment.file ? text_format("%.*s", comment.to - comment.from, f->bytes + comment.from)
                     : NULL;
    PUSH(&f->line, ((struct line){f->indent, f->now.length ? f->now.bytes : "", beside,
                                  f->blank && f->line.n > 0}));
    f->now = (struct text){0};
    f->blank = false;
}

/* How far a line that begins with this token, or with a comment (kind < 0), is indented. */
static int indent_of(const struct format *f, int kind, bool goes_on)
{
    const struct opener *top = f->open.n ? &f->open.item[f->open.n - 1] : NULL;
    if (top && closes(kind)) return top->line_indent;
    int inside = !top ? 0 : top->filled ? top->column : top->line_indent + INDENT;
    return inside + (goes_on && (!top || top->kind == LBRACE) ? INDENT : 0);
}

/* The blanks between two tokens of a line. `sign`: the one before is a sign and not an operator. */
static const char *between(const struct format *f, int before, int kind, bool sign)
{
    if (kind == END || kind == COMMA || kind == RPAR || kind == RBRACK || kind == DOT ||
        kind == RANGE)
        return "";
    if (before == LPAR || before == LBRACK || before == DOT || before == RANGE || sign) return "";
    if (kind == LPAR && before == NAME && !f->head) return "";
    return kind != RBRACE && ((before == END && !f->bare) || before == RBRACE) ? "  " : " ";
}

/* An empty line stands before this byte. */
static bool blank_before(const struct format *f, int at)
{
    int ends = 0;
    while (--at >= 0 && strchr(" \t\r\n", f->bytes[at])) ends += f->bytes[at] == '\n';
    return ends > 1;
}

/* The end of an item, which is written only where something follows on its line. */
static void end_item(struct format *f, const struct piece *p, bool newline, int before)
{
    const struct piece *next = p + 1;
    const bool last = newline || next->newline || next->token.kind == RBRACE ||
                      next->token.kind == END_OF_FILE || next->token.kind == END;
    /* a ';' after a comment: the comment ends the line alike */
    if (newline && (p->beside.file || p->comment.n)) {
        end_line(f, p->beside);
        for (int k = 0; k < p->comment.n; k++) {
            f->indent = indent_of(f, -1, false);
            end_line(f, p->comment.item[k]);
        }
    }
    if (is_written(p) && !last && f->now.length && before != LBRACE && before != RBRACE)
        text_add(&f->now, ";");
    f->head = false;
}

static void lay_out(struct format *f)
{
    int before = -1;
    bool sign = false, carried = false;
    for (int i = 0; i < f->piece.n; i++) {
        const struct piece *p = &f->piece.item[i];
        int kind = p->token.kind;
        struct span beside = p->beside;
        bool newline = p->newline || carried;
        if (kind == END) {
            end_item(f, p, newline, before);
            before = begins_item(before) ? before : END;
            carried |= newline;
            sign = false;
            continue;
        }
        bool goes_on = !begins_item(before);
        const char *blanks = between(f, before, kind, sign);
        f->bare = !goes_on && kind == NAME;
        carried = false;
        if (newline && kind == LBRACE && !beside.file && !p->comment.n)
            newline = false; /* a block opens on the line of its head */
        if (newline) {
            end_line(f, beside);
            bool first = before == LBRACE || before < 0;
            for (int k = 0; k < p->comment.n; k++) {
                f->blank = blank_before(f, p->comment.item[k].from) && !(first && k == 0);
                f->indent = indent_of(f, -1, goes_on && kind != LBRACE);
                end_line(f, p->comment.item[k]);
            }
            f->blank =
                blank_before(f, p->token.at.from) && !(first && !p->comment.n) && kind != RBRACE;
        }
        if (kind == END_OF_FILE) {
            end_line(f, newline ? (struct span){0} : beside);
            break;
        }
        if (!f->now.length)
            f->indent = indent_of(f, kind, goes_on && kind != LBRACE);
        else
            text_add(&f->now, "%s", blanks);
        if (begins_item(before) && kind == NAME)
            f->head = true;
        else if (kind == ASSIGN || kind == LBRACE)
            f->head = false;
        if (f->open.n && f->now.length && !f->open.item[f->open.n - 1].filled && opens(before)) {
            struct opener *top = &f->open.item[f->open.n - 1];
            top->filled = !closes(kind);
            top->column = f->indent + columns(f->now.bytes);
        }
        text_add_bytes(&f->now, f->bytes + p->token.at.from,
                       (size_t)(p->token.at.to - p->token.at.from));
        sign = (kind == MINUS && !ends_value(before)); /* "not" keeps its blank */
        if (opens(kind)) {
            PUSH(&f->open, ((struct opener){kind, 0, f->indent, false, f->head}));
            f->head = false;
        } else if (closes(kind) && f->open.n) {
            f->head = f->open.item[--f->open.n].head;
        }
        before = kind;
    }
}

/* Comments beside code begin in one column in lines that follow each other, and in all lines that
 * leave the room. */
static const char *joined(const struct format *f)
{
    struct text out = {0};
    text_add(&out, "%s", "");
    for (int i = 0; i < f->line.n;) {
        int n = i, widest = COMMENT - BESIDE;
        for (; n < f->line.n; n++) {
            const struct line *l = &f->line.item[n];
            if (!l->comment || !l->code[0] || (n > i && l->blank)) break;
            int width = l->indent + columns(l->code);
            widest = width > widest ? width : widest;
        }
        if (n == i) n++;
        for (; i < n; i++) {
            const struct line *l = &f->line.item[i];
            int gap = l->comment && l->code[0] ? widest + BESIDE - l->indent - columns(l->code) : 0;
            text_add(&out, "%s%*s%s%*s%s\n", l->blank ? "\n" : "", l->indent, "", l->code, gap, "",
                     l->comment ? l->comment : "");
        }
    }
    return out.bytes;
}

/* ── Entry point ─────────────────────────────────────────────────────────── */

struct walk {
    const struct format *f;
    int at, before;
    bool ended;
};

/* The next token that is no end of an entry, and whether an entry ended before it. */
static const struct piece *next_token(struct walk *w)
{
    w->ended = false;
    while (w->at < w->f->piece.n) {
        const struct piece *p = &w->f->piece.item[w->at++];
        if (p->token.kind == END) {
            w->ended = w->before != LBRACE && w->before != RBRACE && w->before >= 0;
            continue;
        }
        w->before = p->token.kind;
        return p;
    }
    return NULL;
}

static int comment_count(const struct format *f)
{
    int n = 0;
    for (int k = 0; k < f->piece.n; k++)
        n += f->piece.item[k].comment.n + (f->piece.item[k].beside.file != 0);
    return n;
}

static bool is_same(const struct format *a, const struct format *b)
{
    struct walk left = {a, 0, -1, false}, right = {b, 0, -1, false};
    const struct piece *p, *q;
    while ((p = next_token(&left)) != NULL) {
        int n = p->token.at.to - p->token.at.from;
        q = next_token(&right);
        if (!q || p->token.kind != q->token.kind || left.ended != right.ended ||
            q->token.at.to - q->token.at.from != n ||
            memcmp(a->bytes + p->token.at.from, b->bytes + q->token.at.from, (size_t)n))
            return false;
    }
    return !next_token(&right) && comment_count(a) == comment_count(b);
}

const char *format_source(int file)
{
    struct format *f = TAKE(struct format), *again = TAKE(struct format);
    read_pieces(f, file);
    lay_out(f);
    const char *text = joined(f);
    read_pieces(again, source_add(source_name(file), text, strlen(text)));
    if (!is_same(f, again)) bug("formatting %s would change it", source_name(file));
    return text;
}
