/* What the cpu device says of itself, for the log, the checks before a run and checkpoints: the
 * machine, its memory and speed, the libraries. Nothing here needs a lane. */
#include "cpu/neighbours.h"
#include "shared/gemm.h"
#include "shared/watch.h"

#include <stdio.h>
#include <sys/utsname.h>

/* A trainer whose kernels multiply nothing is linked without the library that does. */
#pragma weak gemm_text
#pragma weak gemm
#pragma weak gemm_bf16

bool device_find(void) { return machine_has_features(); }

const char *device_limit_text(int64_t limit, char text[256])
{
    char have[32];
    snprintf(text, 256, "the %d ranks of this host have %s each", world.host_size,
             count_text(limit, have));
    return text;
}

int64_t device_memory_bytes(int64_t limit) { return limit; }

int64_t device_limit_bytes(void) { return machine_available_bytes() / world.host_size; }

double device_peak_flops(void) { return machine_peak_flops(program.compute_type); }

const char *device_peak_name(void) { return "FMA peak"; }

const char *device_name(void) { return machine_processor(); }

/* Clusters of processors say nothing that one could tell them by. */
bool device_is(const char *name, const char *arch) { return (void)name, (void)arch, true; }

int64_t device_peak_bytes(struct device *d)
{
    (void)d;
    return machine_peak_bytes() - neighbours_seen_bytes(); /* those are their owners' */
}

void device_describe(struct device *d, double flops)
{
    char a[32], b[32], c[32];
    say("memory per rank: predicted %s bytes, mapped %s bytes (from /proc/self/maps); tables and "
        "batches on the host: %s",
        count_text(device_predicted_bytes(), a), count_text(device_mapped_bytes(d), b),
        count_text(room_bytes(), c));
    say("machine: FMA peak %.1f GFLOP/s in %s, one core per rank, measured on all ranks at once",
        1e-9 * flops, program.compute_type == TYPE_BF16 ? "BF16" : "FP32");
}

bool device_outside_bytes(struct device *d, double before_and_now[2])
{
    return (void)d, (void)before_and_now, false;
}

void device_identify(struct device_identity *is)
{
    char mpi[60], products[64] = "";
    struct utsname system;
    snprintf(is->name, sizeof is->name, "%.90s", device_name());
    snprintf(is->driver, sizeof is->driver, "Linux %.50s",
             uname(&system) == 0 ? system.release : "of no version");
    world_mpi_text(mpi, sizeof mpi);
    if (gemm_text) gemm_text(products);
    snprintf(is->libraries, sizeof is->libraries, "%s%s%s", mpi, products[0] ? ", " : "", products);
}

bool device_square_product(struct device *d, enum element_type type, int64_t n, const void *a,
                           const void *b, void *c)
{
    (void)d;
    if (!gemm) return false;
    if (type == TYPE_F32 || !gemm_bf16(false, false, n, n, n, a, n, b, n, false, c, n))
        gemm(false, false, n, n, n, a, n, b, n, false, c, n);
    return true;
}

const char *device_machine(char text[192])
{
    char library[64] = "no library of products";
    if (gemm_text) gemm_text(library);
    snprintf(text, 192, "%.120s, %s", machine_processor(), library);
    return text;
}
