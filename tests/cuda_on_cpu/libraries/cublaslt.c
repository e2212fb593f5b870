/* libcublasLt.so.13 as plain loops: D = alpha op(A) op(B) + beta C by columns, BF16 or F32
 * operands, F32 sums. The heuristic keeps to the workspace that it is given and refuses what the
 * library refuses (mixed operand types, strides shorter than a column, alignments that the
 * addresses do not have). STANDIN_CUBLASLT_WORKSPACE: the bytes that every algorithm wants; the
 * beginning of what a product is given is filled with NaN, as a workspace is nobody's
 * afterwards.
 *
 * Grouped layouts: sizes and addresses are read when the product runs. A group whose inner
 * dimension is 0 gets NaN, because nobody has promised anything else. STANDIN_CUBLASLT_UNSTEADY:
 * every second grouped product changes a bit. */
#include "streams.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SUCCESS = 0, INVALID = 7, ARCH_MISMATCH = 8, EXECUTION_FAILED = 13, NOT_SUPPORTED = 15 };
enum { F32 = 0, BF16 = 14, COMPUTE_F32 = 68, MAGIC = 0x51a4d1, TOUCHED = 1 << 16 };
struct layout {
    uint32_t type, unused;
    uint64_t rows, columns;
    int64_t ld;
    int64_t groups; /* 0: one matrix, else on the device: */
    const void *group_rows, *group_columns, *group_ld;
};
struct operation {
    uint32_t compute, scale;
    int32_t transpose_a, transpose_b, on_device;
    int64_t alpha_step, beta_step;
};
struct preference {
    uint64_t workspace, mean[3];
    uint32_t alignment[4], reduction;
};
struct algorithm {
    uint64_t data[8];
}; /* MAGIC, workspace bytes */
struct found {
    struct algorithm algorithm;
    size_t workspace;
    unsigned status;
    float waves;
    int reserved[4];
};

static uint64_t wanted_workspace(void)
{
    return (uint64_t)standin_setting("STANDIN_CUBLASLT_WORKSPACE", 0);
}

EXPORTED unsigned cublasLtCreate(void **handle)
{
    *handle = malloc(1);
    return standin_setting("STANDIN_CUBLASLT_REFUSES", 0) ? ARCH_MISMATCH : SUCCESS;
}
EXPORTED unsigned cublasLtDestroy(void *handle) { return free(handle), SUCCESS; }
EXPORTED size_t cublasLtGetVersion(void)
{
    return (size_t)standin_setting("STANDIN_CUBLASLT", 130300);
}
EXPORTED const char *cublasLtGetStatusName(unsigned status)
{
    switch (status) {
    case SUCCESS: return "CUBLAS_STATUS_SUCCESS";
    case INVALID: return "CUBLAS_STATUS_INVALID_VALUE";
    case ARCH_MISMATCH: return "CUBLAS_STATUS_ARCH_MISMATCH";
    case EXECUTION_FAILED: return "CUBLAS_STATUS_EXECUTION_FAILED";
    case NOT_SUPPORTED: return "CUBLAS_STATUS_NOT_SUPPORTED";
    default: return "CUBLAS_STATUS_UNKNOWN";
    }
}
EXPORTED const char *cublasLtGetStatusString(unsigned status)
{
    return cublasLtGetStatusName(status);
}

EXPORTED unsigned cublasLtMatmulDescCreate(struct operation **o, unsigned compute, unsigned scale)
{
    *o = calloc(1, sizeof **o);
    **o = (struct operation){.compute = compute, .scale = scale};
    return SUCCESS;
}
EXPORTED unsigned cublasLtMatmulDescDestroy(struct operation *o) { return free(o), SUCCESS; }
EXPORTED unsigned cublasLtMatmulDescSetAttribute(struct operation *o, unsigned attribute,
                                                 const void *from, size_t bytes)
{
    if (bytes != (attribute == 39 || attribute == 40 ? 8 : 4)) return INVALID;
    switch (attribute) {
    case 2: return memcpy(&o->on_device, from, 4), o->on_device == 1 ? SUCCESS : INVALID;
    case 39: return memcpy(&o->alpha_step, from, 8), SUCCESS;
    case 40: return memcpy(&o->beta_step, from, 8), SUCCESS;
    case 3:
        memcpy(&o->transpose_a, from, 4);
        return o->transpose_a == 0 || o->transpose_a == 1 ? SUCCESS : INVALID;
    case 4:
        memcpy(&o->transpose_b, from, 4);
        return o->transpose_b == 0 || o->transpose_b == 1 ? SUCCESS : INVALID;
    default:
        fprintf(stderr, "stand-in cuBLASLt: attribute %u of a product is unknown here\n",
                attribute);
        return INVALID;
    }
}
EXPORTED unsigned cublasLtMatrixLayoutCreate(struct layout **l, unsigned type, uint64_t rows,
                                             uint64_t columns, int64_t ld)
{
    *l = calloc(1, sizeof **l);
    **l = (struct layout){.type = type, .rows = rows, .columns = columns, .ld = ld};
    return SUCCESS;
}
EXPORTED unsigned cublasLtGroupedMatrixLayoutCreate(struct layout **l, unsigned type, int groups,
                                                    const void *rows, const void *columns,
                                                    const void *ld)
{
    if (groups < 1 || !rows || !columns || !ld) return INVALID;
    *l = calloc(1, sizeof **l);
    **l = (struct layout){.type = type,
                          .groups = groups,
                          .group_rows = rows,
                          .group_columns = columns,
                          .group_ld = ld};
    return SUCCESS;
}
EXPORTED unsigned cublasLtMatrixLayoutDestroy(struct layout *l) { return free(l), SUCCESS; }
EXPORTED unsigned cublasLtMatmulPreferenceCreate(struct preference **p)
{
    *p = calloc(1, sizeof **p);
    **p = (struct preference){.alignment = {256, 256, 256, 256}, .reduction = 0xffffffffu};
    return SUCCESS;
}
EXPORTED unsigned cublasLtMatmulPreferenceDestroy(struct preference *p) { return free(p), SUCCESS; }
EXPORTED unsigned cublasLtMatmulPreferenceSetAttribute(struct preference *p, unsigned attribute,
                                                       const void *from, size_t bytes)
{
    if (attribute == 1 && bytes == 8) return memcpy(&p->workspace, from, 8), SUCCESS;
    if (attribute == 3 && bytes == 4) return memcpy(&p->reduction, from, 4), SUCCESS;
    if (attribute >= 5 && attribute <= 8 && bytes == 4)
        return memcpy(&p->alignment[attribute - 5], from, 4), SUCCESS;
    if (attribute >= 13 && attribute <= 15 && bytes == 8)
        return memcpy(&p->mean[attribute - 13], from, 8), SUCCESS;
    return INVALID;
}

/* Of groups their number and types; their sizes when the product runs. */
static bool fits(const struct operation *o, const struct layout *a, const struct layout *b,
                 const struct layout *c, const struct layout *d)
{
    if (a->groups)
        return o->compute == COMPUTE_F32 && o->scale == F32 && o->on_device && o->alpha_step == 1 &&
               o->beta_step == 1 && a->type == BF16 && b->type == BF16 && c->type == d->type &&
               (d->type == F32 || d->type == BF16) && a->groups == b->groups &&
               a->groups == c->groups && a->groups == d->groups;
    const uint64_t m = o->transpose_a ? a->columns : a->rows,
                   k = o->transpose_a ? a->rows : a->columns;
    const uint64_t kb = o->transpose_b ? b->columns : b->rows,
                   n = o->transpose_b ? b->rows : b->columns;
    bool fine = o->compute == COMPUTE_F32 && o->scale == F32 && a->type == b->type &&
                (a->type == BF16 || a->type == F32) && c->type == d->type;
    fine = fine && (c->type == F32 || (c->type == BF16 && a->type == BF16));
    fine = fine && k == kb && m == c->rows && n == c->columns && m == d->rows && n == d->columns &&
           c->ld == d->ld;
    return fine && a->ld >= (int64_t)a->rows && b->ld >= (int64_t)b->rows &&
           c->ld >= (int64_t)c->rows;
}
EXPORTED unsigned cublasLtMatmulAlgoGetHeuristic(void *handle, struct operation *o,
                                                 struct layout *a, struct layout *b,
                                                 struct layout *c, struct layout *d,
                                                 struct preference *p, int wanted,
                                                 struct found *results, int *found)
{
    (void)handle;
    *found = 0;
    if (wanted < 1) return INVALID;
    if (!fits(o, a, b, c, d) || wanted_workspace() > p->workspace) return NOT_SUPPORTED;
    if (a->groups && (!p->mean[0] || !p->mean[1] || !p->mean[2])) return NOT_SUPPORTED;
    if (a->groups && standin_setting("STANDIN_CUBLASLT_NO_GROUPS", 0)) return NOT_SUPPORTED;
    results[0] = (struct found){
        .algorithm = {{MAGIC, wanted_workspace()}}, .workspace = wanted_workspace(), .waves = 1.0f};
    *found = 1;
    return SUCCESS;
}

struct product {
    struct operation o;
    struct layout a, b, c;
    const unsigned char *at_a, *at_b, *at_c;
    unsigned char *at_d, *workspace;
    size_t workspace_bytes;
    float alpha, beta;
};
static float value(const unsigned char *at, uint32_t type, int64_t i)
{
    uint32_t bits;
    uint16_t half;
    float x;
    if (type == BF16)
        memcpy(&half, at + 2 * i, 2), bits = (uint32_t)half << 16;
    else
        memcpy(&bits, at + 4 * i, 4);
    memcpy(&x, &bits, 4);
    return x;
}
static void put(unsigned char *at, uint32_t type, int64_t i, float x)
{
    uint32_t bits;
    memcpy(&bits, &x, 4);
    if (type == F32) {
        memcpy(at + 4 * i, &bits, 4);
        return;
    }
    uint16_t half = (uint16_t)(x != x ? 0x7fff : (bits + 0x7fff + (bits >> 16 & 1)) >> 16);
    memcpy(at + 2 * i, &half, 2);
}
/* op(matrix), `rows` x `columns`, as floats by rows or by columns. */
static float *unpack(const unsigned char *at, const struct layout *l, bool transposed, bool by_rows,
                     int64_t rows, int64_t columns)
{
    float *to = malloc(sizeof *to * (size_t)(rows * columns));
    for (int64_t j = 0; to && j < columns; j++)
        for (int64_t i = 0; i < rows; i++)
            to[by_rows ? i * columns + j : j * rows + i] =
                value(at, l->type, transposed ? i * l->ld + j : j * l->ld + i);
    return to;
}
static enum standin_progress run_product(void *data)
{
    const struct product *p = data;
    const int64_t m = (int64_t)p->c.rows, n = (int64_t)p->c.columns,
                  k = (int64_t)(p->o.transpose_a ? p->a.rows : p->a.columns);
    float *a = unpack(p->at_a, &p->a, p->o.transpose_a, false, m, k),
          *b = unpack(p->at_b, &p->b, p->o.transpose_b, false, k, n),
          *sum = malloc(sizeof *sum * (size_t)m);
    if (p->workspace)
        memset(p->workspace, 0xff, p->workspace_bytes < TOUCHED ? p->workspace_bytes : TOUCHED);
    for (int64_t j = 0; a && b && sum && j < n; j++) {
        memset(sum, 0, sizeof *sum * (size_t)m);
        for (int64_t l = 0; l < k; l++) {
            const float x = b[j * k + l], *column = a + l * m;
            for (int64_t i = 0; i < m; i++) sum[i] += column[i] * x;
        }
        for (int64_t i = 0; i < m; i++) {
            float old =
                p->beta != 0.0f ? p->beta * value(p->at_c, p->c.type, j * p->c.ld + i) : 0.0f;
            put(p->at_d, p->c.type, j * p->c.ld + i, p->alpha * sum[i] + old);
        }
    }
    free(a), free(b), free(sum);
    return STANDIN_DONE;
}
/* ── groups ──────────────────────────────────────────────────────────────────── */
struct groups {
    struct operation o;
    struct layout a, b, d;
    const void *at[5]; /* arrays of addresses: a, b, d, alpha, beta */
    bool unsteady;
};
static int64_t number_of(const void *array, int64_t g)
{
    const int32_t *at = standin_memory((const int32_t *)array + g, sizeof *at);
    return at ? *at : -1;
}
static struct layout layout_of(const struct layout *l, int64_t g)
{
    return (struct layout){.type = l->type,
                           .rows = (uint64_t)number_of(l->group_rows, g),
                           .columns = (uint64_t)number_of(l->group_columns, g),
                           .ld = number_of(l->group_ld, g)};
}
/* A kernel sees addresses without the mark that those of the driver have (driver.c). */
static const void *address_of(const void *array, int64_t g)
{
    const uintptr_t *at = standin_memory((const uintptr_t *)array + g, sizeof *at);
    return at ? (const void *)(*at | DEVICE_BIT) : NULL;
}
static void *extent(const void *at, const struct layout *l);
static enum standin_progress failed_group(int64_t g, const char *why)
{
    standin_error(719, "stand-in cuBLASLt: group %lld %s", (long long)g, why);
    return STANDIN_FAILED;
}
static enum standin_progress run_groups(void *data)
{
    const struct groups *all = data;
    for (int64_t g = 0; g < all->a.groups; g++) {
        const float *alpha = standin_memory(address_of(all->at[3], g), sizeof *alpha),
                    *beta = standin_memory(address_of(all->at[4], g), sizeof *beta);
        struct product p = {.o = all->o,
                            .a = layout_of(&all->a, g),
                            .b = layout_of(&all->b, g),
                            .c = layout_of(&all->d, g)};
        struct operation one = {.compute = COMPUTE_F32,
                                .scale = F32,
                                .transpose_a = all->o.transpose_a,
                                .transpose_b = all->o.transpose_b};
        if (!alpha || !beta) return failed_group(g, "has no factors");
        if (!fits(&one, &p.a, &p.b, &p.c, &p.c)) return failed_group(g, "does not fit together");
        p.alpha = *alpha, p.beta = *beta;
        if (p.c.rows == 0 || p.c.columns == 0) continue;
        p.at_d = extent(address_of(all->at[2], g), &p.c), p.at_c = p.at_d;
        if (!p.at_d) return failed_group(g, "has a result outside of the device");
        if ((p.o.transpose_a ? p.a.rows : p.a.columns) == 0) {
            for (uint64_t j = 0; j < p.c.columns; j++)
                memset(p.at_d + (size_t)j * (size_t)p.c.ld * (p.c.type == BF16 ? 2 : 4), 0xff,
                       (size_t)p.c.rows * (p.c.type == BF16 ? 2 : 4));
            continue;
        }
        p.at_a = extent(address_of(all->at[0], g), &p.a);
        p.at_b = extent(address_of(all->at[1], g), &p.b);
        if (!p.at_a || !p.at_b) return failed_group(g, "has an operand outside of the device");
        run_product(&p);
        if (all->unsteady) p.at_d[0] ^= 1;
    }
    return STANDIN_DONE;
}
static void *extent(const void *at, const struct layout *l)
{
    const size_t element = l->type == BF16 ? 2 : 4;
    return standin_memory(at, element * ((size_t)l->ld * (l->columns - 1) + l->rows));
}
EXPORTED unsigned cublasLtMatmul(void *handle, struct operation *o, const void *alpha,
                                 const void *a, struct layout *layout_a, const void *b,
                                 struct layout *layout_b, const void *beta, const void *c,
                                 struct layout *layout_c, void *d, struct layout *layout_d,
                                 const struct algorithm *algorithm, void *workspace,
                                 size_t workspace_bytes, stream_t stream)
{
    struct product p = {.o = *o,
                        .a = *layout_a,
                        .b = *layout_b,
                        .c = *layout_d,
                        .workspace_bytes = workspace_bytes};
    (void)handle;
    if (layout_a->groups) {
        static int calls;
        const bool unsteady = standin_setting("STANDIN_CUBLASLT_UNSTEADY", 0) && calls++ % 2;
        struct groups all = {.o = *o,
                             .a = *layout_a,
                             .b = *layout_b,
                             .d = *layout_d,
                             .at = {a, b, d, alpha, beta},
                             .unsteady = unsteady};
        if (!fits(o, layout_a, layout_b, layout_c, layout_d) || algorithm->data[0] != MAGIC)
            return INVALID;
        return standin_enqueue(stream, "cublasLtMatmul", run_groups, &all, sizeof all)
                   ? EXECUTION_FAILED
                   : SUCCESS;
    }
    memcpy(&p.alpha, alpha, 4);
    memcpy(&p.beta, beta, 4);
    if (!fits(o, layout_a, layout_b, layout_c, layout_d)) return INVALID;
    if (algorithm && (algorithm->data[0] != MAGIC || algorithm->data[1] > workspace_bytes))
        return INVALID;
    p.at_a = extent(a, layout_a), p.at_b = extent(b, layout_b), p.at_c = extent(c, layout_c),
    p.at_d = extent(d, layout_d);
    p.workspace = workspace_bytes ? standin_memory(workspace, workspace_bytes) : NULL;
    if (!p.at_a || !p.at_b || !p.at_c || !p.at_d || (workspace_bytes && !p.workspace)) {
        fprintf(stderr, "stand-in cuBLASLt: an operand is not in one allocation of the device\n");
        return EXECUTION_FAILED;
    }
    return standin_enqueue(stream, "cublasLtMatmul", run_product, &p, sizeof p) ? EXECUTION_FAILED
                                                                                : SUCCESS;
}
