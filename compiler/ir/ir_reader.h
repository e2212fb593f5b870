/* The words of a dump's lines, for ir_parse.c. Each function reads one word after blanks, or ends
 * the reading with a message (read_fail). */
#ifndef PLANC_IR_READER_H
#define PLANC_IR_READER_H

#include "ir/ir.h"

#include <setjmp.h>

struct known {
    const char *name;
    struct value *value;
};
struct reader {
    const char *at, *end;
    int line;
    struct graph *graph;
    struct known *table;
    size_t room, used;
    struct region *region;
    struct body *body;
    jmp_buf out;
    const char *why;
};

_Noreturn void read_fail(struct reader *r, const char *format, ...) PRINTF_LIKE(2, 3);
void read_blanks(struct reader *r);
bool read_see(struct reader *r, const char *text);
void read_need(struct reader *r, const char *text);
const char *read_name(struct reader *r);
const char *read_quoted(struct reader *r);
bool read_at_line_end(struct reader *r);
void read_line_end(struct reader *r);
const char *read_number_text(struct reader *r, bool *whole);
int64_t read_whole(struct reader *r);
double read_real(struct reader *r);
int read_choice(struct reader *r, const char *const *names, int n, const char *word);
void read_key(struct reader *r, const char *text);
int64_t read_key_whole(struct reader *r, const char *text);
double read_key_real(struct reader *r, const char *text);
const char *read_key_word(struct reader *r, const char *text);
void read_place(struct reader *r, const char **file, int *line);

#endif
