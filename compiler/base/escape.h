/* Text from outside (a plan, a path, a configuration, a stored tensor's name) inside text that a
 * machine reads. Whatever the bytes are, what comes out is one JSON string, one C literal or a part
 * of one C comment: nothing that a title says can become code, or break the reader of a result. */
#ifndef PLANC_ESCAPE_H
#define PLANC_ESCAPE_H

#include "base/base.h"

/* The length of the UTF-8 sequence at bytes[0..n), or 0 when it is not one (overlong forms,
 * surrogates and code points above U+10FFFF are none). */
int utf8_length(const char *bytes, int n);
/* `s` itself when it is UTF-8, else a copy in the arena with U+FFFD for each byte that is not. */
const char *utf8_text(const char *s);

/* Adds a JSON string with its quotes; NULL adds null. */
void escape_json(struct text *to, const char *s);
/* A C string literal with its quotes, in the arena: printing ASCII as it stands, all other bytes
 * in octal; '?' too where a trigraph could begin. NULL gives 0. */
const char *escape_c(const char *s);
/* What may stand inside a C block comment, on one line, in the arena: no end or beginning of a
 * comment, no trigraph, no control bytes, no marks that turn the direction of text. */
const char *escape_comment(const char *s);

/* What a terminal may be sent: control bytes and bytes that are no UTF-8 as '?'. In the arena. */
const char *printable_text(const char *s);

/* A word of the IR's text: what would end it there (a quote, a backslash, control bytes) as \xNN.
 * And back; what is no such code stays as it is. In the arena. */
const char *escape_word(const char *s);
const char *unescape_word(const char *bytes, size_t n);

#endif
