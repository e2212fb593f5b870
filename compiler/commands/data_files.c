/* Whether the token files of a plan are there, and are what it says. A plan is often checked where
 * its data is not, so nothing here is an error: the trainer refuses at its start what is wrong. */
#define _XOPEN_SOURCE 700
#include "commands/command.h"
#include "commands/data_files.h"

#include <glob.h>
#include <string.h>

/* Files of one pattern that are looked at. */
enum { LOOKED_AT = 64 };

static int64_t vocabulary_of(const struct plan *p)
{
    for (int i = 0; i < p->n_hyper; i++)
        if (!strcmp(p->hyper[i].name, "vocab") && constant_is_whole(&p->hyper[i].value))
            return p->hyper[i].value.top;
    return 0;
}

enum tokens_named data_named(enum data_format format)
{
    switch (format) {
    case DATA_BYTES: return TOKENS_BYTES;
    case DATA_UINT16: return TOKENS_UINT16;
    case DATA_UINT32: return TOKENS_UINT32;
    case DATA_MEGATRON: return TOKENS_MEGATRON;
    case DATA_NUMPY: return TOKENS_NUMPY;
    case DATA_LLMC: return TOKENS_LLMC;
    case DATA_JSON_LINES: return TOKENS_JSON_LINES;
    case DATA_RECOGNISED: break;
    }
    return TOKENS_RECOGNISED;
}

static void check_file(const struct plan *p, const char *path)
{
    const struct tokens_wish wish = {.named = data_named(p->data_format),
                                     .field = p->data_field,
                                     .vocabulary = vocabulary_of(p),
                                     .only_look = true};
    struct tokens_file f;
    char warning[TOKENS_WHY], why[TOKENS_WHY];
    if (!tokens_open(&f, path, &wish, warning, why))
        warn(p->at.data, "%s", why);
    else if (warning[0])
        warn(p->at.data, "%s: %s", path, warning);
    tokens_close(&f);
}

static void check_files(const struct plan *p, const char *const *name, int n)
{
    for (int i = 0; i < n; i++) {
        char path[4096];
        glob_t found = {0};
        if (tokens_path(name[i], path, sizeof path) || !strpbrk(name[i], "*?[")) {
            check_file(p, name[i]);
            continue;
        }
        int rc = glob(name[i], 0, NULL, &found);
        if (rc) warn(p->at.data, "%s: no such file", name[i]);
        for (size_t k = 0; !rc && k < found.gl_pathc && k < LOOKED_AT; k++)
            check_file(p, found.gl_pathv[k]);
        if (!rc) globfree(&found);
    }
}

bool tokenizer_fits(const struct plan *p)
{
    const char *why;
    const int64_t vocabulary = vocabulary_of(p),
                  size = p->data_tokenizer ? tokenizer_size(p->data_tokenizer, &why) : 0;
    if (p->data_tokenizer && !size) warn(p->at.data, "data.tokenizer: %s", why);
    if (!size || !vocabulary || size <= vocabulary) return true;
    add_help(complain(p->at.data, "the tokenizer %s has %s ids, model.vocab holds %s",
                      p->data_tokenizer, text_count(size), text_count(vocabulary)),
             "vocab = %ld", size);
    return false;
}

void data_files_check(const struct plan *p)
{
    check_files(p, p->data_train, p->n_data_train);
    check_files(p, p->data_validation, p->n_data_validation);
}
