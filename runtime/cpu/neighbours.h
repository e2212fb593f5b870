/* What ranks of one host give each other without MPI, asleep while they wait. MPI without
 * process_vm_readv, which containers forbid, copies every byte twice through small buffers, and its
 * waiting is polling, which takes turns with the kernels of the ranks that compute. There are two
 * ways, and both lie in a file in memory that the others of a group open and map:
 *   - slots: the part of the arena that collectives of an FSDP group touch. Each rank writes its
 *     part of a gather into the slots of all, and a reduction adds what lies in theirs.
 *   - windows: what else a group exchanges is shown there a piece at a time. Sums over replicas
 *     have operands and results all over the arena, which would lose its large pages in a file. */
#ifndef PLANC_NEIGHBOURS_H
#define PLANC_NEIGHBOURS_H

#include <mpi.h>
#include <stdbool.h>
#include <stdint.h>

/* The groups that this rank is of. */
enum neighbours { NEIGHBOURS_SHARDS, NEIGHBOURS_REPLICAS, NEIGHBOURS };
/* Bytes that can be shown at a time: of a group of shards, whose window only has small sums, and of
 * replicas. */
enum { NEIGHBOURS_SMALL = 4096, NEIGHBOURS_HALF = 1 << 20 };

/* Of a file, what becomes resident at once in a process that uses some of it: a large page, if the
 * system gives those. */
enum { NEIGHBOURS_BLOCK = 1 << 21 };
/* Bytes from an address to the next one that a large page can begin at. */
int64_t neighbours_align(const void *at);

/* Makes this rank's file: the pages [at, at + bytes) of a mapping, which it replaces by its own,
 * and windows. Both are whole pages; without slots, bytes is 0. Where the system has no such file,
 * nothing changes and groups use MPI. Once a process, before the first step. */
void neighbours_map(void *at, int64_t bytes);

/* Its slots are there now, in pages of the ordinary size: makes large ones of them where the system
 * can. Products read weights there and write gradients. */
void neighbours_populated(void);

/* Whether all of a group can read each other: then each has called neighbours_map() for the same
 * place and found the files of the others. The first call of a process exchanges them over `comm`,
 * so every rank of the group makes it; waits as mpi_finish() does. */
bool neighbours_together(enum neighbours of, MPI_Comm comm);

/* The same of the FSDP group, and `bytes` at `slot` lie in its slots. */
bool neighbours_read(MPI_Comm comm, const void *slot, int64_t bytes);
/* From here on the others may read this rank's slot, or write their parts of it. */
void neighbours_begin(void);
/* Where rank `of` of the group has the `bytes` at `mine`, an address of this rank, until
 * neighbours_end(). Returns once that rank has begun the same collective. */
void *neighbours_at(int of, const void *mine, int64_t bytes);
/* Returns when all have read and written what they wanted. */
void neighbours_end(void);

/* Where this rank writes what it shows next: NEIGHBOURS_SMALL or NEIGHBOURS_HALF bytes. Only after
 * neighbours_shown() has returned for every other rank since the last neighbours_show(). */
void *neighbours_window(enum neighbours of);
/* From here on the others may read it. */
void neighbours_show(enum neighbours of);
/* Where the `bytes` from byte `at` on lie that rank `from` of the group shows: for reading, until
 * this rank shows again. Returns once they are there. */
const void *neighbours_shown(enum neighbours of, int from, int64_t at, int64_t bytes);

/* Of other ranks' memory, how much this process has used so far, in whole blocks: its resident size
 * counts them, and those of their owners do. From any thread. */
int64_t neighbours_seen_bytes(void);

#endif
