/* MPI, for the two files that call it: communicators of this mesh, and one way to wait. A blocking
 * MPI call spins on a core that another rank computes on, so nothing blocks: requests are tested,
 * with sleep in between. */
#ifndef PLANC_WORLD_MPI_H
#define PLANC_WORLD_MPI_H

#include <mpi.h>

#include "trainer.h"

void mpi_check(int rc, const char *what); /* ends the run with MPI's words */
/* a pause between two tests of something that is waited for since `from` (clock_seconds()) */
void mpi_nap(double from);
void mpi_finish(MPI_Request *request, int n, const char *what);
void mpi_split(int color, int key, const char *what, MPI_Comm *to);

#endif
