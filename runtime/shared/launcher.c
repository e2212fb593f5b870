/* What the launcher does to its ranks, as far as a rank can know it. */
#include "trainer.h"

#include <math.h>
#include <stdlib.h>

/* A disk of the slower kind, where nobody measured. */
static const double SAVED_BYTES_PER_SECOND = 500e6;

/* How long mpirun, itself told to end, leaves its ranks between SIGTERM and SIGKILL. Negative: this
 * launcher does not, or not that we know. `planc run` keeps such signals from it and says so. */
static double kill_seconds(void)
{
    const char *open_mpi = getenv("OMPI_MCA_odls_base_sigkill_timeout"),
               *prrte = getenv("PRTE_MCA_odls_base_sigkill_timeout");
    if (!getenv("OMPI_COMM_WORLD_SIZE") || getenv("PLANC_RUN")) return -1;
    return open_mpi ? atof(open_mpi) : prrte ? atof(prrte) : 1;
}

/* Ranks r of one group are neighbours in the world; a launcher that deals them to the hosts in turn
 * sends every gather through the network. */
void launcher_check_places(void)
{
    double mine = world.host_first, *host = ROOM(double, world.size);
    world_exchange(&mine, 1, host);
    const int fsdp = (int)program.fsdp, of_a_host = world.host_size;
    const int least = (fsdp + of_a_host - 1) / of_a_host;
    for (int first = 0; first < world.size; first += fsdp) {
        int hosts = 0;
        for (int r = first; r < first + fsdp; r++) {
            bool seen = false;
            for (int k = first; k < r; k++) seen = seen || (int)host[k] == (int)host[r];
            hosts += !seen;
        }
        if (hosts <= least) continue;
        say("warning: ranks %d to %d, an FSDP group, lie on %d hosts where %d would do: every "
            "gather goes through the network. Give neighbouring ranks to one host: mpirun "
            "--map-by slot, srun --distribution=block",
            first, first + fsdp - 1, hosts, least);
        return;
    }
}

void launcher_warn(double step_seconds, int64_t saved_bytes)
{
    const double left = kill_seconds(), save = (double)saved_bytes / SAVED_BYTES_PER_SECOND;
    if (left < 0 || step_seconds + save < left) return;
    say("warning: mpirun that is told to end kills its ranks after %.3g s; a step takes %.2g s and "
        "saving about %.2g s (at %.0f MB/s): use mpirun --mca odls_base_sigkill_timeout %.0f, or "
        "send the signal to a rank",
        left, step_seconds, save, 1e-6 * SAVED_BYTES_PER_SECOND,
        ceil(2 * (step_seconds + save) + 5));
}
