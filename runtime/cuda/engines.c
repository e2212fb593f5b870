/* Products, attention and products by experts by the engines of the run (start_engines.c). Where
 * cuBLASLt has no way for a dense product, planc's kernel does it, and that is told once a shape.
 * Every rank has the same shapes and the same library, so rank 0 speaks for all. */
#include "attention_cudnn.h"
#include "device.h"
#include "experts_cublaslt.h"
#include "experts_cudnn.h"
#include "gemm_cublaslt.h"

#include <stdio.h>
#include <string.h>

/* What tells a shape from others: the op, then its sizes. */
enum { TOLD = 1024, NUMBERS = 6 };
struct refused {
    int64_t number[NUMBERS];
};

/* Whether it is the first time; of more than TOLD shapes the rest are not told. */
static bool first_time(struct refused shape)
{
    static struct refused told[TOLD];
    static int n;
    for (int i = 0; i < n; i++)
        if (!memcmp(&told[i], &shape, sizeof shape)) return false;
    if (n == TOLD) return false;
    told[n++] = shape;
    return true;
}

/* ── dense products ──────────────────────────────────────────────────────────── */
static const char *type_name(enum element_type t) { return t == TYPE_BF16 ? "BF16" : "FP32"; }

static void say_product(const struct product *p)
{
    char what[160], who[CUDA_WHO];
    const int64_t kind = p->ta | p->tb << 1 | p->add << 2 | (p->a == TYPE_BF16) << 3 |
                         (p->b == TYPE_BF16) << 4 | (p->c == TYPE_BF16) << 5;
    if (!first_time((struct refused){{0, p->m, p->n, p->k, kind}})) return;
    snprintf(what, sizeof what, "%s %lld x %lld of %s[%lld x %lld]%s and %s[%lld x %lld]%s",
             type_name(p->c), (long long)p->m, (long long)p->n, type_name(p->a), (long long)p->m,
             (long long)p->k, p->ta ? " transposed" : "", type_name(p->b), (long long)p->k,
             (long long)p->n, p->tb ? " transposed" : "");
    say("%s: %s: cuBLASLt has no way for %s, in this workspace: planc's kernel does it",
        p->add ? "dense products, added" : "dense products", cuda_who(who), what);
}

void product(const struct product *p, const void *a, const void *b, void *c)
{
    if (engines.gemm == ENGINE_CUBLASLT) {
        if (cublaslt_product(p, a, b, c, cuda.stream[LANE_COMPUTE], workspace(),
                             program.workspace_bytes))
            return;
        /* a product of FP32 and BF16 is never the library's: docs/cuda.md */
        if (p->a == p->b) say_product(p);
    }
    launch(&p->ours, (void *[]){&a, &b, &c});
}

/* ── attention ───────────────────────────────────────────────────────────────── */
bool attention_known(const struct attention *a) { return engines_take(&(struct offer){a, NULL}); }

void attention(const struct attention *a, void *const *p)
{
    cudnn_attention(a, p, cuda.stream[LANE_COMPUTE], workspace(), program.workspace_bytes);
}

/* ── products of experts ─────────────────────────────────────────────────────── */
bool grouped_known(const struct grouped_product *g, void *const *p)
{
    return engines_take(&(struct offer){NULL, g}) &&
           (engines.experts == ENGINE_CUBLASLT ? cublaslt_grouped_fits(p) : cudnn_grouped_fits(p));
}

void grouped_product(const struct grouped_product *g, void *const *p)
{
    if (engines.experts == ENGINE_CUBLASLT)
        cublaslt_grouped_product(g, p, cuda.stream[LANE_COMPUTE], workspace());
    else
        cudnn_grouped_product(g, p, cuda.stream[LANE_COMPUTE], workspace(),
                              program.workspace_bytes);
}
