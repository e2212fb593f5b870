/* What the scanner, the parser, lex.c and ast.c share. The scanner knows bytes, the parser knows
 * order. What is between them (where a line ends an entry, which bracket is open, how deep) is
 * here. */
#ifndef PLANC_LEX_H
#define PLANC_LEX_H

#include "text/ast.h"

enum { DEEPEST_EXPRESSION = 200, DEEPEST_BLOCK = 64 };

enum { NO_TOKEN = -1 };
struct token {
    int kind;
    struct span at;
};

/* A brace that is supplied before byte `at`, or that is dropped there; `accomplice`: what shows
 * it. */
struct mended_brace {
    int at;
    bool supplied;
    struct span brace, accomplice;
    const char *ends;
};
/* `mesh`, `mesh:` or `[mesh]` on a line of its own, and the '}' that was meant to close it. */
struct open_head {
    int head, brace;
};

/* Mistakes that occur in every line of a file written in another format: reported once, the others
 * counted. */
enum slip {
    SLIP_COLON,
    SLIP_COMMA,
    SLIP_QUOTED_NAME,
    SLIP_QUOTES,
    SLIP_COMMENT,
    SLIP_BLOCK,
    SLIP_LIST,
    SLIP_VALUES,
    SLIP_COMPARES,
    SLIP_NO_EQUALS,
    SLIP_ONE_LINE,
    SLIP_GROUPED,
    SLIP_FILE,
    SLIP_POWER,
    SLIP_OPTION,
    SLIP_BLANK,
    SLIP_COUNT
};
/* line: of the others */
struct slips {
    struct diagnostic *said;
    int first_line;
    VECTOR(int) line;
};

struct lex {
    int file, at; /* the scanner's place, bytes */
    const char *bytes;
    void *scanner;
    struct ast *root;
    /* what waits after a token that was supplied; NO_TOKEN: none */
    struct token pending, held;
    struct token first; /* of the item */
    bool in_value;      /* its '=' was there */
    VECTOR(struct open_head) headless;
    VECTOR(struct mended_brace) mend;
    int mended; /* in the order of the text; how many are done */
    struct slips slip[SLIP_COUNT];
    int jumps;
    struct token last, before; /* what the parser was given last, and before that */
    struct token bracket[DEEPEST_EXPRESSION];
    int n_brackets;
    /* the bracket that was open when its entry ended; NO_TOKEN: none */
    struct token unclosed;
    struct token brace[DEEPEST_BLOCK];
    int n_braces;
    /* the name before this was in quotes, ':' after it: that was said */
    bool json;
    bool unfinished; /* blocks are open at the end of the file, and that was said */
    /* too deep to go on: nothing but the end of the file is given */
    bool stopped;
    bool failed; /* an error was reported that the parser met */
    /* some of the text was not understood: what is missing may be what that was */
    bool torn;
};

/* lex.c: a parser's state over a source that was source_add'ed. */
void lex_start(struct lex *lx, int file);
void lex_end(struct lex *lx);

/* Constructors, one a shape of ast.h. Spans are the kids' own, not that of the END after them. */
/* text as written, or the string's content */
struct ast *ast_leaf(struct lex *lx, enum ast_kind kind, struct span at);
struct ast *ast_node(enum ast_kind kind, struct span at);
struct ast *ast_add(struct ast *parent, struct ast *kid);
/* ast_add, and the span grows */
struct ast *ast_more(struct ast *parent, struct ast *kid);
struct ast *ast_block(struct ast *head, struct ast *items, struct span at);
struct ast *ast_say(struct ast *head);
struct ast *ast_entry(struct ast *path, struct ast *value);
struct ast *ast_path(struct lex *lx, struct ast *path, struct span name);
struct ast *ast_or(struct ast *value, struct ast *other); /* alternatives */
struct ast *ast_unary(struct lex *lx, const char *op, struct ast *a, struct span at);
struct ast *ast_binary(struct lex *lx, const char *op, struct ast *a, struct ast *b);
struct ast *ast_choice(struct lex *lx, struct ast *condition, struct ast *then,
                       struct ast *otherwise);
struct ast *ast_call(struct lex *lx, struct span name, struct ast *args, struct span at);
struct ast *ast_list(struct lex *lx, struct ast *args, struct span at);
struct ast *ast_named(struct lex *lx, struct span name, struct ast *value);

/* lex.c: kinds of tokens; whether an item would begin here. */
bool lex_is_infix(int kind);
bool lex_ends_operand(int kind);
bool lex_is_idle(const struct lex *lx);

/* lex.c: complaints of the scanner and of the parser. help may be NULL. */
void lex_slip(struct lex *lx, enum slip which, struct span at, const char *message,
              const char *help);
/* the scanner goes on at this byte */
void lex_jump(struct lex *lx, int to);
void lex_complain(struct lex *lx, struct span at, const char *message, const char *help);
void lex_too_deep(struct lex *lx, struct span at, const char *what);
/* after a syntax error: nothing is open */
void lex_recovered(struct lex *lx);

/* lex_slips.c: says and mends a slip that has one meaning. False: the token is dropped. */
bool lex_mend(struct lex *lx, struct token *t, bool newline);

/* lex_meant.c: what text of other languages was meant to be. */
/* of a string that begins here, where people meant it to end */
int lex_string_length(const char *bytes, int n);
/* of a comment that begins with '/' and '*' */
int lex_comment_length(const char *bytes, int n);
const char *lex_number_meant(
    const char *written); /* ".5", "32,000", "3e^-4", "2^12" as planc writes them */
/* in double quotes, whatever it stood in */
const char *lex_string_meant(const char *written);
/* a sign of other places: the token that is meant, 0: none */
int lex_sign(struct lex *lx, struct span at);

/* Behind the '}' at `brace` when it is one of `headless`, else `otherwise`. */
int lex_behind_own(const struct lex *lx, int brace, int otherwise);

/* lex_braces.c: fills `mend` and `headless`. */
void lex_look_for_braces(struct lex *lx, int n);

/* lex_order.c */
struct expectation {
    bool value, name, string, end, brace, assign, colon, comma, closer, sign;
};
void lex_unexpected(struct lex *lx, const struct expectation *e);

#endif
