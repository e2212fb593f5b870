/* Results of slow compilations, cached under a hash of everything that goes into them. */
#ifndef PLANC_BUILD_KEPT_H
#define PLANC_BUILD_KEPT_H

#include "base/base.h"

/* ${XDG_CACHE_HOME:-~/.cache}/planc, made when it is not there; NULL when that cannot be, or when
 * others may write into it. */
const char *cache_folder(void);
/* As 32 digits. */
const char *hash_text(const struct text *t);

/* Whether `path` is whole: a kept file ends with the hash of what stands before it, which linkers
 * do not look at. A disk that was full or a machine that went down must not make every later build
 * fail. */
bool kept_is_whole(const char *path);
/* What was kept there, without the hash; NULL when it is not there or not whole. */
const char *kept_read(const char *path, size_t *bytes);
/* Keeps bytes, or nothing when that fails: another build only costs a compilation. */
void kept_write(const char *path, const char *bytes, size_t n);

/* A folder of the cache whose trainer is run: sealed when it is built, checked before it is run.
 * False: something in it is not as it was built, or is not only this user's to write. */
void folder_seal(const char *directory);
bool folder_is_sealed(const char *directory);

#endif
