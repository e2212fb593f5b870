/* What ranks of one host read from each other without MPI: the part of the arena that collectives
 * touch lies in a file in memory, which the others of an FSDP group open and read. MPI without
 * process_vm_readv, which containers forbid, copies every byte twice through small buffers. */
#ifndef PLANC_NEIGHBOURS_H
#define PLANC_NEIGHBOURS_H

#include <mpi.h>
#include <stdbool.h>
#include <stdint.h>

/* Replaces the pages [at, at + bytes) of a mapping by such a file; both are whole pages. Where the
 * system has none, nothing changes and groups use MPI. Once a process, before the first step. */
void neighbours_map(void *at, int64_t bytes);

/* Whether all of `group` can read `bytes` at `slot` of each other: then each has called
 * neighbours_map() for the same place and found the files of the others. The first call of a
 * process exchanges them, so every rank of the group makes it; waits as mpi_finish() does. */
bool neighbours_read(MPI_Comm group, const void *slot, int64_t bytes);
/* From here on the others may read what lies in this rank's slot. */
void neighbours_begin(void);
/* Where rank `from` of the group has the `bytes` at `theirs`, an address of this rank: for reading,
 * until neighbours_end(). Returns once that rank has begun the same collective. */
const void *neighbours_at(int from, const void *theirs, int64_t bytes);
/* Returns when all have read what they wanted. */
void neighbours_end(void);
/* Of other ranks' memory, how much this process has read so far, in whole blocks: its resident size
 * counts them, and those of their owners do. From any thread. */
int64_t neighbours_seen_bytes(void);

#endif
