/* The syntax tree: no meaning, no defaults, no evaluated numbers. The tables of the checker decide
 * what a name means, so this file does not change when the language gains a key. The kinds of
 * nodes:
 *   items         kid*: block | say | entry
 *   block         head, items         mesh { ... }, cluster b200 { ... }
 *   say           head                layers   use "x"   require (a) "why"
 *   head          name, label*        label: name | string | expression in parentheses
 *   entry         path, value         hidden = 2048
 *   alternatives  value*              8 | 16
 *   range         from, to            1..4
 *   unary         a                   text: "-" or "not"
 *   binary        a, b                text: the operator
 *   choice        condition, then, else
 *   call          name, arg*          an arg is an expression, or `named`: name, expression
 *   list          arg*
 *   number, string, name              text: as written (string: quotes off, escapes resolved)
 *   path          name*               batch.sequence (a single name is AST_NAME) */
#ifndef PLANC_AST_H
#define PLANC_AST_H

#include "base/diagnostics.h"

enum ast_kind {
    AST_ITEMS,
    AST_BLOCK,
    AST_SAY,
    AST_HEAD,
    AST_ENTRY,
    AST_ALTERNATIVES,
    AST_RANGE,
    AST_UNARY,
    AST_BINARY,
    AST_CHOICE,
    AST_CALL,
    AST_LIST,
    AST_NAMED,
    AST_NUMBER,
    AST_STRING,
    AST_NAME,
    AST_PATH
};

struct ast {
    enum ast_kind kind;
    struct span at;
    const char
        *text; /* interned: the name, the operator, the number as written, the whole path "a.b" */
    struct ast **kid;
    int n, room;
    int depth; /* of the expression below; capped by the parser, so that walks may recurse */
};

/* $HOME, ~: what the lexer has refused, and nobody mentions again. */
static inline bool ast_is_refused(const struct ast *e)
{
    return e->kind == AST_NAME && (e->text[0] == '$' || e->text[0] == '~');
}

/* Parses a source (source_add'ed). Never NULL; errors are diagnostics. */
struct ast *parse_source(int file);
bool parse_was_torn(void); /* whether the last one left out text that it did not understand */
/* Parses "mesh.fsdp=16" of --set as one entry; NULL after a diagnostic. */
struct ast *parse_setting(const char *text);
/* The same for a key that wants a string: all that follows '=' is its text, as it stands. */
struct ast *parse_setting_as_text(const char *text);
/* number.c: whether "80GiB" ends in a unit of the language. */
bool number_has_unit(const char *text);
/* format.c: a source that parses, in its canonical layout. */
const char *format_source(int file);

#endif
