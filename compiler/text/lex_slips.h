/* What the files that repair slips share. */
#ifndef PLANC_LEX_SLIPS_H
#define PLANC_LEX_SLIPS_H

#include "text/lex.h"

bool lex_is_letter(char c);
bool lex_is_digit(char c);
const char *lex_text_of(const struct lex *lx, struct span at);
/* Places in the text: the first byte after blanks of this line; the end of the line; the first byte
 * after a name. */
int lex_behind_blanks(const struct lex *lx, int at);
int lex_line_end(const struct lex *lx, int at);
int lex_behind_name(const struct lex *lx, int at);
/* What stands from here to the end of the entry, for an example. */
const char *lex_rest_text(const struct lex *lx, int from);

/* Each says that the text is of another format, where it is, and jumps over it. */
bool lex_is_json(struct lex *lx, const struct token *t);
bool lex_is_toml(struct lex *lx, struct token *t);
bool lex_is_dash(struct lex *lx, const struct token *t);
bool lex_is_file(struct lex *lx, struct token *t);
bool lex_is_yaml(struct lex *lx, struct token *t);

#endif
