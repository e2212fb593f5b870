/* How many ids a tokenizer has, so that a plan whose vocabulary is too small is refused before it
 * trains: a trainer would find the first id that is beyond it only when it reads it. Hugging Face's
 * tokenizer.json is JSON; a model of sentencepiece is a list of pieces in protocol buffers. */
#include "commands/data_files.h"

#include <errno.h>
#include <jansson.h>
#include <string.h>

static int64_t larger(int64_t a, const json_t *id)
{
    return json_is_integer(id) && json_integer_value(id) >= a ? json_integer_value(id) + 1 : a;
}

static int64_t size_of_json(const json_t *root)
{
    const json_t *vocabulary = json_object_get(json_object_get(root, "model"), "vocab"), *item;
    int64_t n = (int64_t)json_array_size(vocabulary);
    const char *key;
    size_t i;
    json_object_foreach((json_t *)vocabulary, key, item) n = larger(n, item);
    json_array_foreach(json_object_get(root, "added_tokens"), i, item) n =
        larger(n, json_object_get(item, "id"));
    return n;
}

/* A number of protocol buffers; false: the bytes end. */
static bool varint(const unsigned char **at, const unsigned char *end, uint64_t *x)
{
    *x = 0;
    for (int shift = 0; *at < end && shift < 64; shift += 7) {
        const unsigned char byte = *(*at)++;
        *x |= (uint64_t)(byte & 0x7F) << shift;
        if (byte < 0x80) return true;
    }
    return false;
}

/* Pieces are field 1 of the message; every field is skipped by its kind. */
static int64_t size_of_pieces(const unsigned char *at, size_t n)
{
    enum { NUMBER = 0, EIGHT = 1, BYTES = 2, FOUR = 5 };
    const unsigned char *end = at + n;
    int64_t pieces = 0;
    while (at < end) {
        uint64_t tag, length = 0;
        if (!varint(&at, end, &tag)) return 0;
        const int kind = (int)(tag & 7);
        if (kind == NUMBER || kind == BYTES ? !varint(&at, end, &length)
                                            : kind != EIGHT && kind != FOUR)
            return 0;
        const uint64_t skipped = kind == BYTES ? length : kind == EIGHT ? 8 : kind == FOUR ? 4 : 0;
        if (skipped > (uint64_t)(end - at)) return 0;
        at += skipped;
        pieces += tag == (1 << 3 | BYTES);
    }
    return pieces;
}

int64_t tokenizer_size(const char *path, const char **why)
{
    size_t n;
    const char *bytes = file_read(path, &n);
    *why = NULL;
    if (!bytes) {
        *why = text_format("%s: %s", path, strerror(errno));
        return 0;
    }
    json_t *root = bytes[0] == '{' ? json_loadb(bytes, n, 0, NULL) : NULL;
    const int64_t size =
        root ? size_of_json(root) : size_of_pieces((const unsigned char *)bytes, n);
    json_decref(root);
    if (!size)
        *why = text_format("%s: neither a tokenizer.json nor a model of sentencepiece", path);
    return size;
}
