/* Products of gemm_f32.c. Through gemm() of gemm_dnnl.c they have the bits of dnnl_sgemm() of
 * oneDNN 2.6, whichever of the two makes them: shapes and distances of rows are drawn such that all
 * of the library's algorithms appear. By themselves they are right: integers, whose sums are exact,
 * against a naive loop, for every transposition and for k in several passes, and what lies between
 * the rows of a result stays. */
#include "cpu/gemm_f32.h"
#include "gemm.h"

#include <dnnl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static uint32_t seed = 1;
static int64_t drawn(int64_t below)
{
    seed = seed * 1664525u + 1013904223u;
    return (int64_t)((seed >> 8) % (uint32_t)below);
}

/* Integers of at most 7 in absolute value, or fractions of the same size. */
static float *numbers(int64_t n, bool whole)
{
    float *x = malloc(sizeof *x * (size_t)(n + 1));
    for (int64_t i = 0; x && i < n; i++)
        x[i] = whole ? (float)(drawn(15) - 7) : (float)(drawn(14001) - 7000) / 1000;
    return x;
}

struct shape {
    bool ta, tb, add;
    int64_t m, n, k, lda, ldb, ldc;
};

static bool has_the_librarys_bits(struct shape s)
{
    const int64_t size = s.ldc * s.m;
    float *a = numbers(s.lda * (s.ta ? s.k : s.m), false),
          *b = numbers(s.ldb * (s.tb ? s.n : s.k), false), *c = numbers(size, false),
          *d = malloc(sizeof *d * (size_t)size);
    bool fine = a && b && c && d;
    if (fine) {
        memcpy(d, c, sizeof *d * (size_t)size);
        gemm(s.ta, s.tb, s.m, s.n, s.k, a, s.lda, b, s.ldb, s.add, c, s.ldc);
        fine = dnnl_sgemm(s.ta ? 'T' : 'N', s.tb ? 'T' : 'N', s.m, s.n, s.k, 1, a, s.lda, b, s.ldb,
                          s.add, d, s.ldc) == dnnl_success &&
               memcmp(c, d, sizeof *d * (size_t)size) == 0;
    }
    free(a), free(b), free(c), free(d);
    return fine;
}

static bool is_right(struct shape s)
{
    float *a = numbers(s.lda * (s.ta ? s.k : s.m), true),
          *b = numbers(s.ldb * (s.tb ? s.n : s.k), true), *c = numbers(s.ldc * s.m, true),
          *was = malloc(sizeof *was * (size_t)(s.ldc * s.m));
    bool fine = a && b && c && was;
    if (fine) {
        memcpy(was, c, sizeof *was * (size_t)(s.ldc * s.m));
        gemm_f32(s.ta, s.tb, s.m, s.n, s.k, a, s.lda, b, s.ldb, s.add, c, s.ldc);
    }
    for (int64_t i = 0; i < s.m && fine; i++)
        for (int64_t j = 0; j < s.ldc && fine; j++) {
            const float before = was[i * s.ldc + j];
            float sum = s.add ? before : 0;
            for (int64_t l = 0; l < s.k && j < s.n; l++)
                sum += a[s.ta ? l * s.lda + i : i * s.lda + l] *
                       b[s.tb ? j * s.ldb + l : l * s.ldb + j];
            fine = c[i * s.ldc + j] == (j < s.n ? sum : before);
        }
    free(a), free(b), free(c), free(was);
    return fine;
}

static struct shape shape_of(bool ta, bool tb, bool add, int64_t m, int64_t n, int64_t k)
{
    return (struct shape){ta, tb, add, m, n, k, ta ? m : k, tb ? k : n, n};
}

/* What a product may look like; seldom with a transposed A. */
static struct shape any_shape(void)
{
    static const int64_t deep[] = {384, 768, 1152, 1536, 256, 512, 64};
    const bool tb = drawn(2);
    struct shape s = shape_of(drawn(5) == 0, tb, drawn(3) == 0,
                              drawn(4) ? (tb ? 40 : 500) + drawn(200) : 16 * (1 + drawn(60)),
                              drawn(4) ? 1 + drawn(drawn(2) ? 40 : 300) : 64 * (1 + drawn(16)),
                              drawn(3) ? deep[drawn(7)] : 1 + drawn(1200));
    s.lda += drawn(3) ? 0 : drawn(100);
    s.ldb += drawn(3) ? 0 : drawn(100);
    s.ldc += drawn(3) ? 0 : drawn(100);
    if (drawn(4) == 0) s.lda = (s.lda + 1023) / 1024 * 1024, s.ldb = (s.ldb + 1023) / 1024 * 1024;
    return s;
}

static const char *text_of(struct shape s)
{
    static char text[160];
    snprintf(text, sizeof text, "%s%s, %lld x %lld x %lld, rows %lld, %lld, %lld apart%s",
             s.ta ? "T" : "N", s.tb ? "T" : "N", (long long)s.m, (long long)s.n, (long long)s.k,
             (long long)s.lda, (long long)s.ldb, (long long)s.ldc, s.add ? ", added" : "");
    return text;
}

int main(void)
{
    const dnnl_version_t *v = dnnl_version();
    if ((dnnl_get_effective_cpu_isa() & dnnl_cpu_isa_avx512_core) != dnnl_cpu_isa_avx512_core) {
        printf("skip f32.products: no AVX-512\n");
        return 0;
    }
    bool fine = true;
    for (int i = 0; i < 60 && fine; i++) {
        struct shape s = shape_of(i & 1, i & 2, i & 4, 1 + drawn(80), 1 + drawn(130),
                                  i < 40 ? drawn(200) : 1 + drawn(1000));
        s.lda += drawn(5), s.ldb += drawn(5), s.ldc += drawn(3);
        fine = is_right(s);
        if (!fine) printf("FAIL f32.products: not a naive loop's (%s)\n", text_of(s));
    }
    for (int i = 0; i < 4 && fine; i++) /* columns in several parts, k in several passes */
        if (!(fine = is_right(shape_of(i & 1, i & 2, false, 25, 700, 1152))))
            printf("FAIL f32.products: columns in parts, transposition %d\n", i);
    if (fine) printf("ok f32.products\n");
    if (v->major != 2 || v->minor != 6) {
        printf("skip f32.bits: they are those of oneDNN 2.6, this is %d.%d\n", v->major, v->minor);
        return 0;
    }
    static const int64_t layers[][3] = {{2048, 1536, 384}, {2048, 384, 1536}, {2048, 1152, 384},
                                        {2048, 384, 384},  {2048, 384, 1152}, {2048, 128, 256},
                                        {2048, 256, 128},  {512, 256, 512},   {195, 512, 256},
                                        {195, 256, 512},   {64, 512, 256},    {64, 256, 512}};
    enum { LAYERS = sizeof layers / sizeof *layers };
    int taken = 0;
    fine = true;
    for (int i = 0; i < 2 * LAYERS + 400 && fine; i++) {
        const int64_t *of = layers[i / 2 % LAYERS];
        const struct shape s =
            i < 2 * LAYERS ? shape_of(false, i & 1, false, of[0], of[1], of[2]) : any_shape();
        taken += gemm_f32_takes(s.ta, s.tb, s.m, s.n, s.k);
        if (!(fine = has_the_librarys_bits(s)))
            printf("FAIL f32.bits: not the library's (%s)\n", text_of(s));
    }
    if (fine && taken < 150) printf("FAIL f32.bits: only %d shapes are gemm_f32's\n", taken);
    if (fine && taken >= 150) printf("ok f32.bits\n");
    return 0;
}
