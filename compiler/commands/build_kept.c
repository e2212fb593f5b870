/* The cache of a build: files named by a hash of their inputs, so none is ever out of date. */
#define _GNU_SOURCE
#include "commands/build_kept.h"
#include "commands/build_job.h"

#define XXH_INLINE_ALL
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#define HASH_DIGITS 32

const char *cache_folder(void)
{
    const char *base = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    if ((!base || base[0] != '/') && (!home || !*home)) return NULL;
    const char *path = base && base[0] == '/' ? text_format("%s/planc", base)
                                              : text_format("%s/.cache/planc", home);
    return make_folders(path) ? path : NULL;
}

const char *hash_text(const struct text *t)
{
    XXH128_hash_t h = XXH3_128bits(t->bytes ? t->bytes : "", t->length);
    return text_format("%016llx%016llx", (unsigned long long)h.high64, (unsigned long long)h.low64);
}

static const char *hash_bytes(const char *bytes, size_t n)
{
    return hash_text(&(struct text){.bytes = (char *)(uintptr_t)bytes, .length = n});
}

const char *kept_read(const char *path, size_t *n)
{
    char *bytes = file_read(path, n);
    if (!bytes || *n <= HASH_DIGITS) return NULL;
    *n -= HASH_DIGITS;
    return memcmp(bytes + *n, hash_bytes(bytes, *n), HASH_DIGITS) ? NULL : bytes;
}

bool kept_is_whole(const char *path)
{
    size_t n;
    return kept_read(path, &n) != NULL;
}

void kept_write(const char *path, const char *bytes, size_t n)
{
    struct text all = {0};
    text_add_bytes(&all, bytes, n);
    text_add_bytes(&all, hash_bytes(bytes, n), HASH_DIGITS);
    if (!file_write(path, all.bytes, all.length)) remove_file(path);
}
