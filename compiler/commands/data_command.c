/* `planc data`: what files of tokens are, and files of tokens from others. Files are opened and
 * read by the trainer's own reader, so what is accepted here is what trains. Every id is read: the
 * largest one is what a vocabulary must hold. */
#include "base/escape.h"
#include "commands/command.h"
#include "commands/data_files.h"
#include "commands/data_pack.h"
#include "check/keys.h"

#include <stdlib.h>
#include <string.h>

enum { FIRST = 8 /* ids that are shown */ };

struct seen {
    int64_t largest, at, documents; /* documents: -1: not marked */
    int32_t first[FIRST];
    int firsts;
};

/* Reads every id. */
static bool look(const struct tokens_file *f, int64_t end_token, struct seen *s, char *why)
{
    static unsigned char buffer[TOKENS_BUFFER]; /* of all files, of which there may be many */
    static int32_t ids[DATA_PIECE];
    *s = (struct seen){.largest = -1, .documents = f->documents};
    if (!tokens_check_index(f, 0, 1, buffer, why)) return false;
    int64_t ends = 0;
    int32_t last = -1;
    for (int64_t at = 0; at < f->tokens; at += DATA_PIECE) {
        const int64_t n = f->tokens - at < DATA_PIECE ? f->tokens - at : DATA_PIECE;
        if (!tokens_read(f, at, n, 0, buffer, ids, why)) return false;
        for (int64_t i = 0; i < n; i++) {
            if (ids[i] > s->largest) s->largest = ids[i], s->at = at + i;
            ends += ids[i] == end_token;
        }
        for (int64_t i = 0; i < n && s->firsts < FIRST; i++) s->first[s->firsts++] = ids[i];
        last = ids[n - 1];
    }
    if (s->documents < 0 && end_token >= 0)
        s->documents = ends + (f->tokens > 0 && last != end_token);
    return true;
}

static void print_json(struct text *t, const struct tokens_file *f, const struct seen *s)
{
    char text[64];
    text_add(t, "%s\n    {\"file\": ", t->length > 24 ? "," : "");
    escape_json(t, f->path);
    text_add(t, ", \"format\": ");
    escape_json(t, tokens_text(f, text));
    text_add(t, ", \"bytes\": %ld, \"id_bytes\": %d, \"tokens\": %ld", f->file_bytes, f->id_bytes,
             f->tokens);
    if (s->documents >= 0) text_add(t, ", \"documents\": %ld", s->documents);
    if (s->largest >= 0) text_add(t, ", \"largest_id\": %ld", s->largest);
    text_add(t, ", \"first\": [");
    for (int i = 0; i < s->firsts; i++) text_add(t, "%s%d", i ? ", " : "", s->first[i]);
    text_add(t, "]}");
}

static void print_text(const struct tokens_file *f, const struct seen *s)
{
    char text[64];
    struct text first = {0};
    for (int i = 0; i < s->firsts; i++) text_add(&first, " %d", s->first[i]);
    if (f->tokens > s->firsts) text_add(&first, " …");
    printf("%s: %s\n", printable_text(f->path), tokens_text(f, text));
    printf("  %-11s %s\n", "tokens", text_count(f->tokens));
    printf("  %-11s %s\n", "documents",
           s->documents >= 0 ? text_count(s->documents) : "not marked; --end-token ID counts them");
    if (s->largest >= 0)
        printf("  %-11s %s (token %s)\n", "largest id", text_count(s->largest), text_count(s->at));
    printf("  %-11s%s\n", "first", first.length ? first.bytes : " none");
}

static int describe(const struct arguments *a, const struct tokens_wish *wish, int64_t end_token)
{
    struct text json = {0};
    int64_t tokens = 0, largest = -1;
    text_add(&json, "{\n  \"files\": [");
    for (int i = 0; i < a->word.n; i++) {
        struct arena_mark mark = arena_mark();
        struct tokens_file f;
        struct seen s;
        char warning[TOKENS_WHY], why[TOKENS_WHY];
        bool fine =
            tokens_open(&f, a->word.item[i], wish, warning, why) && look(&f, end_token, &s, why);
        if (fine && warning[0]) fprintf(stderr, "planc: warning: %s: %s\n", f.path, warning);
        if (fine && !a->json) print_text(&f, &s);
        if (fine && a->json) print_json(&json, &f, &s);
        if (fine) tokens += f.tokens, largest = s.largest > largest ? s.largest : largest;
        tokens_close(&f);
        if (!fine) return command_fail(EXIT_ENVIRONMENT, "%s", why);
        if (!a->json) arena_reset(mark);
    }
    if (a->json)
        printf("%s\n  ],\n  \"tokens\": %ld\n}\n", json.bytes, tokens);
    else if (a->word.n > 1)
        printf("together: %s tokens, largest id %s\n", text_count(tokens), text_count(largest));
    return EXIT_FINE;
}

/* Text is what a file holds, unless it is JSON lines. */
static int data_tokenize(const struct arguments *a, struct tokens_wish *wish, int64_t end_token)
{
    struct sentencepiece *model = TAKE(struct sentencepiece);
    if (!a->model)
        return command_fail(EXIT_USAGE,
                            "data tokenize wants --model FILE, a model of sentencepiece");
    const char *why = sentencepiece_open(model, a->model);
    if (why) return command_fail(EXIT_ENVIRONMENT, "%s", why);
    wish->vocabulary = 256;
    const int status = data_pack(a, wish, end_token < 0 ? model->end_token : end_token, model);
    if (status == EXIT_FINE && !a->json)
        printf("the vocabulary has %s ids: model.vocab is at least that\n",
               text_count(model->vocabulary));
    return status;
}

int command_data(const struct arguments *a)
{
    struct tokens_wish wish = {.field = a->field};
    const char *words = key_rows[K_data_format].words;
    bool works;
    if (a->format && strcmp(a->format, "auto") && !words_find(words, a->format, &works))
        return command_fail(EXIT_USAGE, "--format is one of %s, not '%s'", words_text(words, true),
                            a->format);
    if (a->format && strcmp(a->format, "auto"))
        wish.named = data_named((enum data_format)words_index(words, a->format));
    char *end = NULL;
    int64_t end_token = a->end_token ? strtoll(a->end_token, &end, 10) : -1;
    if (a->end_token && (*end || end == a->end_token || end_token < 0 || end_token > INT32_MAX))
        return command_fail(EXIT_USAGE, "--end-token is a token id, not '%s'", a->end_token);
    const bool pack = a->word.n && !strcmp(a->word.item[0], "pack");
    const bool tokenize = a->word.n && !strcmp(a->word.item[0], "tokenize");
    if (a->model && !tokenize)
        return command_fail(EXIT_USAGE, "--model is of `planc data tokenize FILE… -o FILE`");
    if (tokenize) return data_tokenize(a, &wish, end_token);
    if (pack) return data_pack(a, &wish, end_token, NULL);
    if (!a->word.n)
        return command_fail(EXIT_USAGE, "data takes files of tokens, or pack and files of tokens");
    if (a->output || a->as)
        return command_fail(EXIT_USAGE, "%s is of `planc data pack FILE… -o FILE`",
                            a->output ? "-o" : "--as");
    return describe(a, &wish, end_token);
}
