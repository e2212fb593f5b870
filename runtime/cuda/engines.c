/* Products and attention by the engine that the plan asks for. Where a library has no way for a
 * shape, planc's kernel does it, and that is told once a shape. Every rank has the same shapes and
 * the same library (checked at start), so rank 0 speaks for all. */
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

static void say_ours(const char *op, enum engine asked, const char *what)
{
    char who[CUDA_WHO];
    say("%s: %s: %s has no way for %s, in this workspace: planc's kernel does it", op,
        cuda_who(who), asked == ENGINE_CUDNN ? "cuDNN" : "cuBLASLt", what);
}

/* ── dense products ──────────────────────────────────────────────────────────── */
static const char *type_name(enum element_type t) { return t == TYPE_BF16 ? "BF16" : "FP32"; }

static void say_product(const struct product *p)
{
    char what[160];
    const int64_t kind = p->ta | p->tb << 1 | p->add << 2 | (p->a == TYPE_BF16) << 3 |
                         (p->b == TYPE_BF16) << 4 | (p->c == TYPE_BF16) << 5;
    if (!first_time((struct refused){{0, p->m, p->n, p->k, kind}})) return;
    snprintf(what, sizeof what, "%s %lld x %lld of %s[%lld x %lld]%s and %s[%lld x %lld]%s",
             type_name(p->c), (long long)p->m, (long long)p->n, type_name(p->a), (long long)p->m,
             (long long)p->k, p->ta ? " transposed" : "", type_name(p->b), (long long)p->k,
             (long long)p->n, p->tb ? " transposed" : "");
    say_ours(p->add ? "dense products, added" : "dense products", ENGINE_CUBLASLT, what);
}

void product(const struct product *p, const void *a, const void *b, void *c)
{
    if (program.gemm == ENGINE_CUBLASLT) {
        if (cublaslt_product(p, a, b, c, cuda.stream[LANE_COMPUTE], workspace(),
                             program.workspace_bytes))
            return;
        /* a product of FP32 and BF16 is never the library's: docs/cuda.md */
        if (p->a == p->b) say_product(p);
    }
    launch(&p->ours, (void *[]){&a, &b, &c});
}

/* ── attention ───────────────────────────────────────────────────────────────── */
static void say_attention(const struct attention *a)
{
    char what[160];
    if (!first_time((struct refused){
            {1, a->sequences, a->sequence, a->heads << 20 | a->kv_heads, a->width, a->gradient}}))
        return;
    snprintf(what, sizeof what, "%s %lld x %lld tokens, %lld heads, %lld of keys, %lld wide",
             a->gradient ? "the gradient of" : "the attention of", (long long)a->sequences,
             (long long)a->sequence, (long long)a->heads, (long long)a->kv_heads,
             (long long)a->width);
    say_ours("attention", ENGINE_CUDNN, what);
}

bool attention_known(const struct attention *a)
{
    if (program.attention != ENGINE_CUDNN) return false;
    const bool known = cudnn_attention_known(a, program.workspace_bytes);
    if (!known) say_attention(a);
    return known;
}

void attention(const struct attention *a, void *const *p)
{
    cudnn_attention(a, p, cuda.stream[LANE_COMPUTE], workspace(), program.workspace_bytes);
}

/* ── products of experts ─────────────────────────────────────────────────────── */
static void say_experts(const struct grouped_product *g)
{
    char what[160];
    if (!first_time(
            (struct refused){{2, g->rows, g->experts, g->in, g->out, g->gradient ? 2 : g->across}}))
        return;
    snprintf(what, sizeof what, "%s of %lld rows by %lld experts, %lld to %lld",
             g->gradient ? "the weights' gradient"
             : g->across ? "the gradient"
                         : "the product",
             (long long)g->rows, (long long)g->experts, (long long)g->in, (long long)g->out);
    say_ours("experts", program.experts, what);
}

bool grouped_known(const struct grouped_product *g, void *const *p)
{
    const bool known =
        program.experts == ENGINE_CUBLASLT
            ? cublaslt_grouped_known(g, p, workspace())
            : program.experts == ENGINE_CUDNN && cudnn_grouped_known(g, p, program.workspace_bytes);
    if (!known) say_experts(g);
    return known;
}

void grouped_product(const struct grouped_product *g, void *const *p)
{
    if (program.experts == ENGINE_CUBLASLT)
        cublaslt_grouped_product(g, p, cuda.stream[LANE_COMPUTE], workspace());
    else
        cudnn_grouped_product(g, p, cuda.stream[LANE_COMPUTE], workspace(),
                              program.workspace_bytes);
}
