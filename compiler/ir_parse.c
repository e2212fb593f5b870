/* Reads the text of ir_print back. It exists so that a pass can be tested alone and a dump can be trusted: what reads
 * back to the same bytes is all there is. It trusts nothing: names must be known, types and shapes must be those
 * that op_infer derives, counts must add up; the first thing wrong is one message with its line. */
#include "ir.h"

#include <setjmp.h>
#include <stdlib.h>
#include <string.h>

