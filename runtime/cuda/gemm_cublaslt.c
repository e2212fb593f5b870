/* Dense matrix products by cuBLASLt. Our operands are stored by rows and the library's by columns.
 * A matrix by rows is its transpose by columns, so c = a b becomes c' = b' a' without moving
 * anything.
 *
 * A product always runs the same algorithm, on every rank and in every run: the first that the
 * library's heuristic names for the shape, the alignment of the three addresses and the workspace.
 * Nothing is timed, because a choice by time differs between runs. Sums split over k may be
 * combined in the workspace, in order; algorithms that add in place or in a rounded type are masked
 * out. F32 stays F32: no TF32.
 *
 * The descriptors of a product are made at its first use, in the first step (before graphs are
 * captured), and cached by everything that they depend on. */
#include "gemm_cublaslt.h"

#include "device.h"

#include <stdio.h>
#include <string.h>

/* What a product's description depends on: all of struct product but ours, how its addresses are
 * aligned, and the workspace. */
struct key {
    int64_t m, n, k, lda, ldb, ldc, workspace;
    int32_t ta, tb, add, type_a, type_b, type_c;
    uint32_t align_a, align_b, align_c, unused;
};
struct entry {
    struct key key;
    bool used, known;       /* known: the library has an algorithm */
    struct blas_product of; /* its a is our b */
};
enum { ENTRIES = 1024 }; /* a power of two; a plan has a few dozen */

static struct {
    void *handle;
    struct entry *entry;
    int64_t entries;
} lt;

void *cublaslt_handle(void) { return lt.handle; }

bool cublaslt_open(char *why)
{
    if (lt.handle) return true;
    if (!cuda_library_open(LIBRARY_CUBLASLT, why)) return false;
    unsigned status = cublaslt.cublasLtCreate(&lt.handle);
    if (status)
        return snprintf(why, LIBRARY_WHY, "cuBLASLt does not start on this device: %s",
                        cublaslt.cublasLtGetStatusName(status)),
               false;
    lt.entry = ROOM(struct entry, ENTRIES);
    return true;
}

/* The largest power of two up to 256 that divides an address. */
static uint32_t alignment(const void *p)
{
    uintptr_t low = (uintptr_t)p | 256;
    return (uint32_t)(low & (~low + 1));
}

static unsigned type_of(int32_t t) { return t == TYPE_BF16 ? BLAS_BF16 : BLAS_F32; }

/* Stored rows x columns by rows, `stride` apart: columns x rows by columns. */
static bool layout(void **to, int32_t type, int64_t rows, int64_t columns, int64_t stride)
{
    return cublaslt.cublasLtMatrixLayoutCreate(to, type_of(type), (uint64_t)columns, (uint64_t)rows,
                                               stride) == 0;
}

static bool describe(struct entry *e)
{
    const struct key *k = &e->key;
    const int32_t a = k->tb ? BLAS_TRANSPOSED : BLAS_AS_STORED,
                  b = k->ta ? BLAS_TRANSPOSED : BLAS_AS_STORED;
    return cublaslt.cublasLtMatmulDescCreate(&e->of.product, BLAS_COMPUTE_F32, BLAS_F32) == 0 &&
           cublaslt.cublasLtMatmulDescSetAttribute(e->of.product, BLAS_PRODUCT_A_IS, &a,
                                                   sizeof a) == 0 &&
           cublaslt.cublasLtMatmulDescSetAttribute(e->of.product, BLAS_PRODUCT_B_IS, &b,
                                                   sizeof b) == 0 &&
           layout(&e->of.a, k->type_b, k->tb ? k->n : k->k, k->tb ? k->k : k->n, k->ldb) &&
           layout(&e->of.b, k->type_a, k->ta ? k->k : k->m, k->ta ? k->m : k->k, k->lda) &&
           layout(&e->of.c, k->type_c, k->m, k->n, k->ldc);
}

static bool wish_for(void *wishes, struct blas_wish w)
{
    return cublaslt.cublasLtMatmulPreferenceSetAttribute(wishes, w.what, w.value, w.bytes) == 0;
}

bool cublaslt_choose(struct blas_product *p, const struct blas_wish *wish, int wishes,
                     int64_t workspace)
{
    const uint64_t room_for = (uint64_t)workspace;
    const uint32_t ordered = BLAS_SPLIT_SUMS_IN_WORKSPACE;
    void *all;
    struct blas_found found[8];
    int n = 0;
    if (cublaslt.cublasLtMatmulPreferenceCreate(&all) != 0) return false;
    bool fine =
        wish_for(all, (struct blas_wish){BLAS_WISH_WORKSPACE, &room_for, sizeof room_for}) &&
        wish_for(all, (struct blas_wish){BLAS_WISH_SPLIT_SUMS, &ordered, sizeof ordered});
    for (int i = 0; i < wishes; i++) fine = fine && wish_for(all, wish[i]);
    fine = fine && cublaslt.cublasLtMatmulAlgoGetHeuristic(lt.handle, p->product, p->a, p->b, p->c,
                                                           p->c, all, 8, found, &n) == 0;
    cublaslt.cublasLtMatmulPreferenceDestroy(all);
    for (int i = 0; fine && i < n; i++)
        if (found[i].status == 0 && found[i].workspace_bytes <= (size_t)workspace) {
            p->algorithm = found[i].algorithm;
            return true;
        }
    return false;
}

static bool choose(struct entry *e)
{
    const struct key *k = &e->key;
    const struct blas_wish limit[] = {{BLAS_WISH_ALIGNED_A, &k->align_b, sizeof k->align_b},
                                      {BLAS_WISH_ALIGNED_B, &k->align_a, sizeof k->align_a},
                                      {BLAS_WISH_ALIGNED_C, &k->align_c, sizeof k->align_c},
                                      {BLAS_WISH_ALIGNED_D, &k->align_c, sizeof k->align_c}};
    return cublaslt_choose(&e->of, limit, sizeof limit / sizeof *limit, k->workspace);
}

static uint64_t hash(const struct key *k)
{
    uint64_t h = 0;
    const unsigned char *byte = (const void *)k;
    for (size_t i = 0; i < sizeof *k; i += 4) {
        uint32_t word;
        memcpy(&word, byte + i, sizeof word);
        h = shuffle_mix(h ^ word);
    }
    return h;
}

static struct entry *find(const struct key *k)
{
    char where[CUDA_WHERE];
    for (uint64_t at = hash(k);; at++) {
        struct entry *e = &lt.entry[at % ENTRIES];
        if (e->used && !memcmp(&e->key, k, sizeof *k)) return e;
        if (e->used) continue;
        if (lt.entries == ENTRIES / 2)
            fail_now("%s: more than %d different matrix products; run.gemm = planc does without "
                     "cuBLASLt",
                     cuda_where(where), ENTRIES / 2);
        lt.entries++;
        e->key = *k;
        e->used = true;
        e->known = describe(e) && choose(e);
        return e;
    }
}

static bool knows(const struct product *p)
{
    return p->m > 0 && p->n > 0 && p->k > 0 && p->a == p->b &&
           (p->c == TYPE_F32 || (p->c == TYPE_BF16 && p->a == TYPE_BF16 && !p->add));
}

bool cublaslt_product(const struct product *p, const void *a, const void *b, void *c, void *stream,
                      void *workspace, int64_t bytes)
{
    if (!lt.handle || !knows(p)) return false;
    const struct key k = {.m = p->m,
                          .n = p->n,
                          .k = p->k,
                          .lda = p->lda,
                          .ldb = p->ldb,
                          .ldc = p->ldc,
                          .workspace = bytes,
                          .ta = p->ta,
                          .tb = p->tb,
                          .add = p->add,
                          .type_a = (int32_t)p->a,
                          .type_b = (int32_t)p->b,
                          .type_c = (int32_t)p->c,
                          .align_a = alignment(a),
                          .align_b = alignment(b),
                          .align_c = alignment(c)};
    const struct entry *e = find(&k);
    if (!e->known) return false;
    const float one = 1, beta = p->add ? 1 : 0;
    unsigned status = cublaslt.cublasLtMatmul(
        lt.handle, e->of.product, &one, b, e->of.a, a, e->of.b, &beta, c, e->of.c, c, e->of.c,
        &e->of.algorithm, workspace, (size_t)bytes, (cuda_stream)stream);
    char where[CUDA_WHERE];
    if (status)
        fail_now("%s: cuBLASLt failed at a product of %lld x %lld x %lld: %s", cuda_where(where),
                 (long long)p->m, (long long)p->n, (long long)p->k,
                 cublaslt.cublasLtGetStatusName(status));
    return true;
}
