/* Expert products by cuBLASLt, one call for all experts: sizes and addresses of the groups are read
 * on the device, where a kernel of ours has written them, so nothing waits for the router's choice
 * and the call can be in a graph. As dense products (gemm_cublaslt.c) they run the first algorithm
 * that the heuristic names, here for the mean number of rows.
 *
 * NVIDIA calls this interface experimental and says nothing of the order of its sums. So the first
 * product of each shape is made twice, in the first step, and the run ends if a bit differs. What
 * an expert without rows gets is not left to the library: no rows are written, and our kernel
 * clears the gradient of its weights. */
#include "experts_cublaslt.h"

#include "device.h"
#include "gemm_cublaslt.h"

#include <stdio.h>

enum { SHAPES = 64, BLAS_ALIGNED = 16 };
struct entry {
    int64_t experts, rows, in, out;
    bool across, gradient, known, checked;
    const void *work;
    struct blas_product of;
};

static struct {
    struct entry entry[SHAPES];
    int entries;
} grouped_products;

bool cublaslt_grouped_open(int major, int minor, char *why)
{
    /* BF16 in grouped layouts: Blackwell, then Hopper */
    enum { ON_BLACKWELL = 130200, ON_HOPPER = 130300 };
    const size_t version = cublaslt.cublasLtGetVersion(),
                 oldest = major == 9 ? ON_HOPPER : ON_BLACKWELL;
    if (!cuda_library_open(LIBRARY_CUBLASLT_GROUPED, why)) return false;
    if (major != 9 && major != 10)
        return snprintf(why, LIBRARY_WHY,
                        "cuBLASLt has no products by experts for compute capability %d.%d", major,
                        minor),
               false;
    if (version < oldest)
        return snprintf(why, LIBRARY_WHY,
                        "cuBLASLt %zu.%zu.%zu is too old, products by experts need %zu.%zu or "
                        "later on compute capability %d.%d",
                        version / 10000, version / 100 % 100, version % 100, oldest / 10000,
                        oldest / 100 % 100, major, minor),
               false;
    return true;
}

static const uint64_t *addresses(const struct grouped_product *p, const void *work,
                                 enum group_address kind)
{
    return (const uint64_t *)((const char *)work + p->groups) + kind * p->experts;
}

static const int32_t *numbers(const struct grouped_product *p, const void *work,
                              enum group_number kind)
{
    return (const int32_t *)(addresses(p, work, GROUP_ADDRESSES) + 2) + kind * p->experts;
}

/* Two sums, of what the first and the second product gave. */
static uint64_t *sums(const struct grouped_product *p, void *work)
{
    return (uint64_t *)(uintptr_t)addresses(p, work, GROUP_ADDRESSES);
}

static bool layout(void **to, const struct grouped_product *p, unsigned type, const void *work,
                   enum group_number rows, enum group_number columns, enum group_number step)
{
    return grouped.cublasLtGroupedMatrixLayoutCreate(
               to, type, (int)p->experts, numbers(p, work, rows), numbers(p, work, columns),
               numbers(p, work, step)) == 0;
}

static bool set(void *product, unsigned what, const void *value, size_t bytes)
{
    return cublaslt.cublasLtMatmulDescSetAttribute(product, what, value, bytes) == 0;
}

/* d[m,n] = a[m,k] b[k,n] by columns; of a transposed operand rows and columns change places. */
static bool describe(struct entry *e, const struct grouped_product *p)
{
    const bool ta = !p->gradient && !p->across, tb = p->gradient;
    const int32_t a = ta ? BLAS_TRANSPOSED : BLAS_AS_STORED,
                  b = tb ? BLAS_TRANSPOSED : BLAS_AS_STORED, factors = BLAS_FACTORS_ON_DEVICE;
    const int64_t step = 1;
    return cublaslt.cublasLtMatmulDescCreate(&e->of.product, BLAS_COMPUTE_F32, BLAS_F32) == 0 &&
           set(e->of.product, BLAS_PRODUCT_A_IS, &a, sizeof a) &&
           set(e->of.product, BLAS_PRODUCT_B_IS, &b, sizeof b) &&
           set(e->of.product, BLAS_PRODUCT_FACTORS_ARE, &factors, sizeof factors) &&
           set(e->of.product, BLAS_PRODUCT_ALPHA_STEP, &step, sizeof step) &&
           set(e->of.product, BLAS_PRODUCT_BETA_STEP, &step, sizeof step) &&
           layout(&e->of.a, p, BLAS_BF16, e->work, ta ? GROUP_K : GROUP_M, ta ? GROUP_M : GROUP_K,
                  GROUP_LDA) &&
           layout(&e->of.b, p, BLAS_BF16, e->work, tb ? GROUP_N : GROUP_K, tb ? GROUP_K : GROUP_N,
                  GROUP_LDB) &&
           layout(&e->of.c, p, p->gradient ? BLAS_F32 : BLAS_BF16, e->work, GROUP_M, GROUP_N,
                  GROUP_LDD);
}

static bool choose(struct entry *e, const struct grouped_product *p)
{
    const uint32_t aligned = BLAS_ALIGNED;
    const int64_t rows = (p->rows + p->experts - 1) / p->experts, m = p->gradient ? p->in : p->out,
                  n = p->gradient ? p->out : rows, k = p->gradient ? rows : p->in;
    const struct blas_wish wishes[] = {{BLAS_WISH_ALIGNED_A, &aligned, sizeof aligned},
                                       {BLAS_WISH_ALIGNED_B, &aligned, sizeof aligned},
                                       {BLAS_WISH_ALIGNED_C, &aligned, sizeof aligned},
                                       {BLAS_WISH_ALIGNED_D, &aligned, sizeof aligned},
                                       {BLAS_WISH_MEAN_M, &m, sizeof m},
                                       {BLAS_WISH_MEAN_N, &n, sizeof n},
                                       {BLAS_WISH_MEAN_K, &k, sizeof k}};
    return cublaslt_choose(&e->of, wishes, sizeof wishes / sizeof *wishes, p->groups);
}

static struct entry *find(const struct grouped_product *p, const void *work)
{
    char where[CUDA_WHERE];
    for (int i = 0; i < grouped_products.entries; i++) {
        struct entry *e = &grouped_products.entry[i];
        if (e->experts == p->experts && e->rows == p->rows && e->in == p->in && e->out == p->out &&
            e->across == p->across && e->gradient == p->gradient && e->work == work)
            return e;
    }
    if (grouped_products.entries == SHAPES)
        fail_now("%s: more than %d different shapes of grouped products; run.experts = planc does "
                 "without cuBLASLt",
                 cuda_where(where), SHAPES);
    struct entry *e = &grouped_products.entry[grouped_products.entries++];
    *e = (struct entry){.experts = p->experts,
                        .rows = p->rows,
                        .in = p->in,
                        .out = p->out,
                        .across = p->across,
                        .gradient = p->gradient,
                        .work = work};
    e->known = describe(e, p) && choose(e, p);
    return e;
}

bool cublaslt_grouped_known(const struct grouped_product *p, const void *work)
{
    return find(p, work)->known;
}

bool cublaslt_grouped_fits(void *const *address)
{
    for (int i = 0; i < 4; i++)
        if (i != 2 && (uintptr_t)address[i] % BLAS_ALIGNED) return false;
    return true;
}

static void multiply(const struct entry *e, const struct grouped_product *p, void *stream,
                     void *work)
{
    char where[CUDA_WHERE];
    const void *a = addresses(p, work, GROUP_A), *b = addresses(p, work, GROUP_B);
    void *d = (void *)(uintptr_t)addresses(p, work, GROUP_D);
    unsigned status = cublaslt.cublasLtMatmul(
        cublaslt_handle(), e->of.product, addresses(p, work, GROUP_ALPHA), a, e->of.a, b, e->of.b,
        addresses(p, work, GROUP_BETA), d, e->of.c, d, e->of.c, &e->of.algorithm, work,
        (size_t)p->groups, (cuda_stream)stream);
    if (status)
        fail_now("%s: cuBLASLt failed at a product of %lld rows by %lld experts: %s",
                 cuda_where(where), (long long)p->rows, (long long)p->experts,
                 cublaslt.cublasLtGetStatusName(status));
}

/* The same product twice over the same bytes. */
static void check(const struct grouped_product *p, const struct entry *e, void *result,
                  void *stream, void *work)
{
    char where[CUDA_WHERE];
    uint64_t got[2] = {0};
    int64_t words = p->bytes / 4;
    for (int i = 0; i < 2; i++) {
        uint64_t *to = sums(p, work) + i;
        CUDA(cuMemsetD8Async, (cuda_address)(uintptr_t)result, 0xff, (size_t)p->bytes,
             (cuda_stream)stream);
        multiply(e, p, stream, work);
        cuda_launch_runtime(RUNTIME_CHECKSUM, LANE_COMPUTE, (words + 1023) / 1024, 256,
                            (void *[]){&result, &words, &to});
    }
    CUDA(cuMemcpyDtoHAsync, got, (cuda_address)(uintptr_t)sums(p, work), sizeof got,
         (cuda_stream)stream);
    CUDA(cuStreamSynchronize, (cuda_stream)stream);
    if (got[0] != got[1])
        fail_now("%s: cuBLASLt gives a product of %lld rows by %lld experts other bits the second "
                 "time; run.experts = planc gives the same",
                 cuda_where(where), (long long)p->rows, (long long)p->experts);
}

void cublaslt_grouped_product(const struct grouped_product *p, void *const *address, void *stream,
                              void *work)
{
    struct entry *e = find(p, work);
    if (e->checked) {
        multiply(e, p, stream, work);
        return;
    }
    check(p, e, address[3], stream, work);
    e->checked = true;
}
