/* The cache of a build: files named by a hash of their inputs, so none is ever out of date. */
#define _GNU_SOURCE
#include "commands/build_kept.h"
#include "commands/build_job.h"
#include "commands/build_sweep.h"

#define XXH_INLINE_ALL
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#define HASH_DIGITS 32

static bool is_own(const struct stat *st) { return st->st_uid == geteuid() || st->st_uid == 0; }

/* A folder into which nobody but its user and root can write; what lies in it is as safe. */
static bool is_safe(const struct stat *st)
{
    return S_ISDIR(st->st_mode) && is_own(st) && !(st->st_mode & 022);
}

const char *cache_folder(void)
{
    const char *base = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    if ((!base || base[0] != '/') && (!home || !*home)) return NULL;
    const char *path = base && base[0] == '/' ? text_format("%s/planc", base)
                                              : text_format("%s/.cache/planc", home);
    struct stat st;
    if (!make_private_folders(path) || stat(path, &st)) return NULL;
    if (!is_safe(&st)) {
        static bool said;
        if (!said)
            fprintf(stderr,
                    "planc: '%s' is not used: it is another user's, or others may write into it\n",
                    path);
        said = true;
        return NULL;
    }
    if (st.st_mode & 077) (void)chmod(path, 0700); /* it was made by an older version */
    sweep_cache(path);
    return path;
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
    struct stat st;
    if (lstat(path, &st) || !S_ISREG(st.st_mode) || !is_own(&st)) return NULL;
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
    if (!file_write_durable(path, all.bytes, all.length)) remove_file(path);
}

/* ── a folder that is run ────────────────────────────────────────────────────── */

#define SEAL ".sealed"

/* Of everything in a folder and in its cuda/ that can be executed or compiled: "HASH NAME" a line.
 */
static void add_hashes(struct text *to, const char *directory, const char *below)
{
    DIR *d = opendir(below ? text_format("%s/%s", directory, below) : directory);
    if (!d) return;
    for (struct dirent *e = readdir(d); e; e = readdir(d)) {
        const char *name = below ? text_format("%s/%s", below, e->d_name)
                                 : text_format("%s", e->d_name),
                   *path = text_format("%s/%s", directory, name);
        struct stat st;
        size_t n, length = strlen(name);
        if (e->d_name[0] == '.' || lstat(path, &st) || !S_ISREG(st.st_mode)) continue;
        if (length > 4 && !strcmp(name + length - 4, ".log")) continue;
        const char *bytes = file_read(path, &n);
        if (bytes) text_add(to, "%s %s\n", hash_bytes(bytes, n), name);
    }
    closedir(d);
}

void folder_seal(const char *directory)
{
    struct text all = {0};
    (void)chmod(directory, 0700); /* where that fails, it is built again every time */
    add_hashes(&all, directory, NULL);
    add_hashes(&all, directory, "cuda");
    kept_write(text_format("%s/" SEAL, directory), all.bytes ? all.bytes : "", all.length);
}

bool folder_is_sealed(const char *directory)
{
    struct stat st;
    size_t n = 0, have;
    if (lstat(directory, &st) || !is_safe(&st)) return false;
    const char *seal = kept_read(text_format("%s/" SEAL, directory), &n);
    bool trainer = false;
    for (const char *line = seal, *end = seal + n; seal && line < end;) {
        const char *stop = memchr(line, '\n', (size_t)(end - line));
        if (!stop || stop - line <= HASH_DIGITS + 1) return false;
        const char *name =
            text_format("%.*s", (int)(stop - line) - HASH_DIGITS - 1, line + HASH_DIGITS + 1);
        const char *path = text_format("%s/%s", directory, name);
        if (lstat(path, &st) || !S_ISREG(st.st_mode) || !is_own(&st)) return false;
        const char *bytes = file_read(path, &have);
        if (!bytes || memcmp(line, hash_bytes(bytes, have), HASH_DIGITS)) return false;
        trainer |= !strcmp(name, "trainer");
        line = stop + 1;
    }
    return trainer;
}
