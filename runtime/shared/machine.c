/* The machine: the instructions of this CPU, FMAs per second of a core, available and used memory.
 * The fractions that are printed later depend on these measured numbers. */
#define _GNU_SOURCE
#include "trainer.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

/* ── features ────────────────────────────────────────────────────────────────── */

/* The kernel and the compiler spell features differently ("avx512_bf16", "avx512bf16"; "sse4_1",
 * "sse4.1"). */
static void plain(const char *from, char *to, size_t bytes)
{
    size_t n = 0;
    for (; *from && n + 1 < bytes; from++)
        if (isalnum((unsigned char)*from)) to[n++] = (char)tolower((unsigned char)*from);
    to[n] = 0;
    if (!strcmp(to, "sse3")) snprintf(to, bytes, "pni");
    if (!strcmp(to, "lzcnt")) snprintf(to, bytes, "abm");
}

bool machine_has_features(void)
{
    static char line[16384], missing[512];
    FILE *f = fopen("/proc/cpuinfo", "r");
    bool found = false;
    while (f && !found && fgets(line, sizeof line, f))
        found = !strncmp(line, "flags", 5) || !strncmp(line, "Features", 8);
    if (f) fclose(f);
    if (!found || program.cpu_features == 0) return true; /* nothing to compare with */
    static char have[256][32];
    int n = 0;
    char *list = strchr(line, ':');
    for (char *word = strtok(list ? list + 1 : line, " \t\n"); word && n < 256;
         word = strtok(NULL, " \t\n"))
        plain(word, have[n++], sizeof have[0]);
    for (int i = 0; i < program.cpu_features; i++) {
        char want[32];
        bool there = false;
        plain(program.cpu_feature[i], want, sizeof want);
        for (int k = 0; k < n && !there; k++) there = !strcmp(want, have[k]);
        if (!there) {
            size_t used = strlen(missing);
            snprintf(missing + used, sizeof missing - used, "%s%s", used ? ", " : "",
                     program.cpu_feature[i]);
        }
    }
    if (missing[0])
        return fail_note(
            "built for a CPU with %s, which this one lacks: build the plan on this machine",
            missing);
    return true;
}

/* ── FMA peak ────────────────────────────────────────────────────────────────── */
/* 24 independent accumulators hide the latency of two FMA units of four to five cycles each with
 * room to spare. */
enum { CHAINS = 24, ROUNDS = 2048 };

#if defined __x86_64__
#include <immintrin.h>

__attribute__((target("avx512f"))) static double fma_512(void)
{
    __m512 a[CHAINS], m = _mm512_set1_ps(0.999f), c = _mm512_set1_ps(1e-3f);
    for (int i = 0; i < CHAINS; i++) a[i] = _mm512_set1_ps((float)i);
    for (int r = 0; r < ROUNDS; r++)
#pragma GCC unroll 24
        for (int i = 0; i < CHAINS; i++) a[i] = _mm512_fmadd_ps(a[i], m, c);
    float sum = 0, lane[16];
    for (int i = 0; i < CHAINS; i++) {
        _mm512_storeu_ps(lane, a[i]);
        sum += lane[i % 16];
    }
    return (double)sum;
}

/* Two products and two sums a lane: what a BF16 matrix product is made of. */
__attribute__((target("avx512f,avx512bf16"))) static double pairs_512(void)
{
    __m512 a[CHAINS];
    __m512bh m = (__m512bh)_mm512_set1_epi16(0x3c00), c = (__m512bh)_mm512_set1_epi16(0x3c00);
    for (int i = 0; i < CHAINS; i++) a[i] = _mm512_set1_ps((float)i);
    for (int r = 0; r < ROUNDS; r++)
#pragma GCC unroll 24
        for (int i = 0; i < CHAINS; i++) a[i] = _mm512_dpbf16_ps(a[i], m, c);
    float sum = 0, lane[16];
    for (int i = 0; i < CHAINS; i++) {
        _mm512_storeu_ps(lane, a[i]);
        sum += lane[i % 16];
    }
    return (double)sum;
}

__attribute__((target("avx2,fma"))) static double fma_256(void)
{
    enum { FEWER = 12 }; /* sixteen registers */
    __m256 a[FEWER], m = _mm256_set1_ps(0.999f), c = _mm256_set1_ps(1e-3f);
    for (int i = 0; i < FEWER; i++) a[i] = _mm256_set1_ps((float)i);
    for (int r = 0; r < 2 * ROUNDS; r++)
#pragma GCC unroll 12
        for (int i = 0; i < FEWER; i++) a[i] = _mm256_fmadd_ps(a[i], m, c);
    float sum = 0, lane[8];
    for (int i = 0; i < FEWER; i++) {
        _mm256_storeu_ps(lane, a[i]);
        sum += lane[i % 8];
    }
    return (double)sum;
}
#endif

static double fma_plain(void)
{
    float a[16][CHAINS / 4];
    for (int i = 0; i < 16 * (CHAINS / 4); i++) (&a[0][0])[i] = (float)i;
    for (int r = 0; r < ROUNDS; r++)
        for (int i = 0; i < 16; i++)
            for (int k = 0; k < CHAINS / 4; k++) a[i][k] = a[i][k] * 0.999f + 1e-3f;
    float sum = 0;
    for (int i = 0; i < 16; i++) sum += a[i][i % (CHAINS / 4)];
    return (double)sum;
}

double machine_peak_flops(enum element_type type)
{
    double (*loop)(void) = fma_plain, flops = 2.0 * 16 * (CHAINS / 4) * ROUNDS;
#if defined __x86_64__
    if (type == TYPE_BF16 && __builtin_cpu_supports("avx512bf16")) {
        loop = pairs_512;
        flops = 4.0 * 16 * CHAINS * ROUNDS;
    } else if (__builtin_cpu_supports("avx512f")) {
        loop = fma_512;
        flops = 2.0 * 16 * CHAINS * ROUNDS;
    } else if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) {
        loop = fma_256;
        flops = 2.0 * 8 * 12 * 2 * ROUNDS;
    }
#endif
    volatile double keep = 0;
    double best = 0, begun = clock_seconds(), now = begun;
    /* the best of many short runs: the first ones wake the clock up */
    while (now - begun < 0.020) {
        double from = now;
        for (int i = 0; i < 4; i++) keep = keep + loop();
        now = clock_seconds();
        if (now > from && 4 * flops / (now - from) > best) best = 4 * flops / (now - from);
    }
    /* ranks that share a core have no more than their share of it */
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    return cores > 0 && cores < world.host_size ? best * (double)cores / (double)world.host_size
                                                : best;
}

/* ── memory ──────────────────────────────────────────────────────────────────── */

const char *machine_processor(void)
{
    static char name[128];
    char line[512];
    FILE *f = fopen("/proc/cpuinfo", "r");
    while (f && !name[0] && fgets(line, sizeof line, f)) {
        const char *colon = strncmp(line, "model name", 10) ? NULL : strchr(line, ':');
        if (colon)
            snprintf(name, sizeof name, "%.*s", (int)strcspn(colon + 2, "\n\"\\"), colon + 2);
    }
    if (f) fclose(f);
    return name[0] ? name : "a processor without a name";
}

int64_t machine_available_bytes(void)
{
    FILE *f = fopen("/proc/meminfo", "r");
    char line[256];
    int64_t kib = 0;
    while (f && fgets(line, sizeof line, f))
        if (sscanf(line, "MemAvailable: %" SCNd64, &kib) == 1) break;
    if (f) fclose(f);
    return kib * 1024;
}

int64_t machine_mapped_bytes(const void *address, int64_t bytes)
{
    const uintptr_t from = (uintptr_t)address, to = from + (uintptr_t)bytes;
    FILE *f = fopen("/proc/self/maps", "r");
    char line[8192];
    int64_t mapped = 0;
    if (!f) return -1;
    while (fgets(line, sizeof line, f)) {
        uintptr_t low, high;
        char mode[8];
        if (sscanf(line, "%" SCNxPTR "-%" SCNxPTR " %7s", &low, &high, mode) != 3 ||
            mode[0] != 'r' || mode[1] != 'w')
            continue;
        /* a neighbour that the kernel merged with ours would be counted too, were it not for the
         * guards around us */
        if (low < to && high > from) mapped += (int64_t)(high - low);
    }
    fclose(f);
    return mapped;
}

int64_t machine_peak_bytes(void)
{
    struct rusage u;
    return getrusage(RUSAGE_SELF, &u) == 0 ? (int64_t)u.ru_maxrss * 1024 : 0;
}
