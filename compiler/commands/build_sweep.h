/* Removes what builds, exports and packings of data that were killed left behind. */
#ifndef PLANC_BUILD_SWEEP_H
#define PLANC_BUILD_SWEEP_H

/* Intermediate files of a folder for a trainer; the caller holds the folder's lock, so no build
 * that made them is still at work. */
void sweep_folder(const char *directory);
/* Half-written files of the cache that are older than an hour: there is no lock on it. */
void sweep_cache(const char *directory);
/* PATH.NUMBER and `ending`, unless a process holds its lock: it is still being written. They are
 * files, or folders, which `folder` removes. */
void sweep_beside(const char *path, const char *ending, void (*folder)(const char *path));

#endif
