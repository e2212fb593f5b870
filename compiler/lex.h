/* What the scanner, the parser, lex.c and ast.c share, and nobody else sees. The scanner knows bytes, the parser knows
 * order; what lies between (where a line ends an entry, which bracket is open, how deep) is kept here, so that neither
 * the grammar nor the patterns have to say it. */
#ifndef PLANC_LEX_H
#define PLANC_LEX_H

#include "ast.h"

enum { DEEPEST_EXPRESSION = 200, DEEPEST_BLOCK = 64 };

struct token { int kind; struct span at; };

struct lex {
    int file, at;                   /* the scanner's place, bytes */
    const char *bytes;
    void *scanner;
    struct ast *root;
    struct token pending;           /* kind -1: none */
    struct token last, before;      /* what the parser was given last, and before that */
    struct token bracket[DEEPEST_EXPRESSION]; int n_brackets;
    struct token unclosed;          /* the bracket that was open when its entry ended; kind -1: none */
    struct token brace[DEEPEST_BLOCK]; int n_braces;
    bool stopped;                   /* too deep to go on: nothing but the end of the file is given */
    bool failed;                    /* an error was reported */
};

/* lex.c: a parser's state over a source that was source_add'ed. */
void lex_start(struct lex *lx, int file);
void lex_end(struct lex *lx);

/* Constructors, one a shape of ast.h. Spans are the kids' own, not that of the END behind them. */
struct ast *ast_leaf(struct lex *lx, enum ast_kind kind, struct span at);      /* text as written, or the string's content */
struct ast *ast_node(enum ast_kind kind, struct span at);
struct ast *ast_add(struct ast *parent, struct ast *kid);
struct ast *ast_more(struct ast *parent, struct ast *kid);                     /* ast_add, and the span grows */
struct ast *ast_block(struct ast *head, struct ast *items, struct span at);
struct ast *ast_say(struct ast *head);
struct ast *ast_entry(struct ast *path, struct ast *value);
struct ast *ast_path(struct lex *lx, struct ast *path, struct span name);
struct ast *ast_or(struct ast *value, struct ast *other);                      /* alternatives */
struct ast *ast_unary(struct lex *lx, const char *op, struct ast *a, struct span at);
struct ast *ast_binary(struct lex *lx, const char *op, struct ast *a, struct ast *b);
struct ast *ast_choice(struct lex *lx, struct ast *condition, struct ast *then, struct ast *otherwise);
struct ast *ast_call(struct lex *lx, struct span name, struct ast *args, struct span at);
struct ast *ast_list(struct lex *lx, struct ast *args, struct span at);
struct ast *ast_named(struct lex *lx, struct span name, struct ast *value);

/* lex.c: complaints of the scanner and of the parser. help may be NULL. */
void lex_complain(struct lex *lx, struct span at, const char *message, const char *help);
void lex_too_deep(struct lex *lx, struct span at, const char *what);
void lex_recovered(struct lex *lx);                                            /* after a syntax error: nothing is open */
struct expectation { bool value, name, string, end, brace, assign, colon, comma, closer, sign; };
void lex_unexpected(struct lex *lx, const struct expectation *e);

#endif
