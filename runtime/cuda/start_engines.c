/* Which engine does products, attention and products by experts in this run, decided before the
 * first step. A library that the plan names must be there; one that it leaves to the host (`auto`)
 * is used where every rank has it in the same version on the same kind of device. Then each rank
 * asks it for all that launch.c offers, and it gets what it can do on every rank: ranks that took
 * different engines would not be wrong, but a run would not repeat on other hosts. What planc's
 * kernels do instead is said once. */
#include "device.h"
#include "experts_cublaslt.h"
#include "experts_cudnn.h"
#include "attention_cudnn.h"
#include "gemm_cublaslt.h"
#include "start_cudnn.h"

#include <stdio.h>

struct engines engines; /* planc's */

static bool *taken; /* of each offer */

/* ── libraries ───────────────────────────────────────────────────────────────── */

static bool open_gemm(char *why) { return cublaslt_open(why); }

static bool open_attention(char *why)
{
    const struct dnn_use use = {.attention = true, .ordered = program.attention_auto};
    return cudnn_open(use, gpu.major, gpu.minor, why);
}

static bool open_experts(char *why)
{
    if (program.experts == ENGINE_CUDNN)
        return cudnn_open((struct dnn_use){.experts = true}, gpu.major, gpu.minor, why);
    return cublaslt_open(why) && cublaslt_grouped_open(gpu.major, gpu.minor, why);
}

static size_t version_of(enum engine e)
{
    return e == ENGINE_CUDNN ? cudnn.cudnnGetVersion() : cublaslt.cublasLtGetVersion();
}

static const char *library_name(enum engine e) { return e == ENGINE_CUDNN ? "cuDNN" : "cuBLASLt"; }

struct wish {
    const char *op, *key;
    enum engine engine;
    bool optional; /* planc's kernels do it where the library is not there */
    bool (*open)(char *why);
};

/* Rank 0 has what the lowest rank that lacks the library says of itself. */
static void tell_lack(const struct wish *w, int rank, const char *why)
{
    char text[CUDA_WHO + LIBRARY_WHY], who[CUDA_WHO];
    snprintf(text, sizeof text, "%s: %s", cuda_who(who), why);
    if (rank != 0 && world.rank == rank) world_send(text, sizeof text, 0);
    if (rank != 0 && world.rank == 0) world_receive(text, sizeof text, rank);
    say("%s: %s: planc's kernels do it on all ranks", w->op, text);
}

/* Which engine does it: the wished one, or planc's. Collective; a wish that is none ends the run
 * where a rank cannot have it. */
static enum engine decide(const struct wish *w)
{
    enum { NUMBERS = 3 };
    char why[LIBRARY_WHY] = "", who[CUDA_WHO];
    if (w->engine == ENGINE_PLANC) return ENGINE_PLANC;
    const bool there = w->open(why);
    if (!there && !w->optional)
        fail_note("%s: %s; %s = planc does without", cuda_who(who), why, w->key);
    if (!w->optional) world_agree();
    const double mine[NUMBERS] = {there, there ? (double)version_of(w->engine) : 0,
                                  gpu.major * 1e6 + gpu.minor * 1e4 + gpu.multiprocessors};
    double *all = ROOM(double, NUMBERS *(int64_t)world.size);
    world_exchange(mine, NUMBERS, all);
    for (int r = 0; r < world.size; r++)
        if (!all[NUMBERS * r]) return tell_lack(w, r, why), ENGINE_PLANC;
    for (int r = 1; r < world.size; r++) {
        const double *other = all + NUMBERS * (int64_t)r;
        if (other[1] == all[1] && other[2] == all[2]) continue;
        const char *what = other[1] != all[1] ? library_name(w->engine) : "kind of device";
        if (w->optional) {
            say("%s: rank %d has another %s than rank 0: planc's kernels do it on all ranks", w->op,
                r, what);
            return ENGINE_PLANC;
        }
        fail_note("rank %d has another %s than rank 0: %s would differ; %s = planc does without", r,
                  what, w->op, w->key);
        break;
    }
    if (!w->optional) world_agree();
    return w->engine;
}

static bool offered(bool attention)
{
    for (int i = 0; i < launch_offers; i++)
        if ((launch_offer[i].attention != NULL) == attention) return true;
    return false;
}

void engines_open(void)
{
    const bool attention = !program.attention_auto || offered(true),
               experts = !program.experts_auto || offered(false);
    engines.gemm =
        decide(&(struct wish){"dense products", "run.gemm", program.gemm, false, open_gemm});
    engines.attention = decide(&(struct wish){"attention", "run.attention",
                                              attention ? program.attention : ENGINE_PLANC,
                                              program.attention_auto, open_attention});
    engines.experts =
        decide(&(struct wish){"experts", "run.experts", experts ? program.experts : ENGINE_PLANC,
                              program.experts_auto, open_experts});
}

/* ── what they take ──────────────────────────────────────────────────────────── */

static void say_ours(const char *op, enum engine asked, int rank, const char *what)
{
    char who[CUDA_WHO];
    if (rank == 0)
        cuda_who(who);
    else
        snprintf(who, sizeof who, "rank %d", rank);
    say("%s: %s: %s has no way for %s, in this workspace: planc's kernel does it", op, who,
        library_name(asked), what);
}

static void say_offer(const struct offer *o, int rank)
{
    char what[160];
    const struct attention *a = o->attention;
    const struct grouped_product *g = o->grouped;
    if (a)
        snprintf(what, sizeof what,
                 "the %s %lld x %lld tokens, %lld heads, %lld of keys, %lld wide",
                 a->gradient ? "gradient of" : "attention of", (long long)a->sequences,
                 (long long)a->sequence, (long long)a->heads, (long long)a->kv_heads,
                 (long long)a->width);
    else
        snprintf(what, sizeof what, "%s of %lld rows by %lld experts, %lld to %lld",
                 g->gradient ? "the weights' gradient"
                 : g->across ? "the gradient"
                             : "the product",
                 (long long)g->rows, (long long)g->experts, (long long)g->in, (long long)g->out);
    say_ours(a ? "attention" : "experts", a ? engines.attention : engines.experts, rank, what);
}

static bool known(const struct offer *o)
{
    if (o->attention)
        return engines.attention == ENGINE_CUDNN &&
               cudnn_attention_known(o->attention, program.workspace_bytes);
    switch (engines.experts) {
    case ENGINE_PLANC: return false;
    case ENGINE_CUBLASLT: return cublaslt_grouped_known(o->grouped, workspace());
    case ENGINE_CUDNN: return cudnn_grouped_known(o->grouped, program.workspace_bytes);
    }
    return false;
}

void engines_ask(void)
{
    const int64_t n = launch_offers;
    double *mine = ROOM(double, n + 1), *all = ROOM(double, (n + 1) * world.size);
    taken = ROOM(bool, n + 1);
    for (int64_t i = 0; i < n; i++) mine[i] = known(&launch_offer[i]);
    if (n > 0) world_exchange(mine, n, all);
    for (int64_t i = 0; i < n; i++) {
        const struct offer *o = &launch_offer[i];
        int without = world.size;
        for (int r = world.size - 1; r >= 0; r--)
            if (!all[n * r + i]) without = r;
        taken[i] = without == world.size;
        if (!taken[i] && (o->attention ? engines.attention : engines.experts) != ENGINE_PLANC)
            say_offer(o, without);
    }
}

bool engines_take(const struct offer *o)
{
    for (int i = 0; i < launch_offers; i++)
        if (launch_offer[i].attention == o->attention && launch_offer[i].grouped == o->grouped)
            return taken[i];
    return false;
}

/* ── for people ──────────────────────────────────────────────────────────────── */

static const char *engine_name(enum engine e, bool attention, bool of_offers, char text[96])
{
    const size_t version = e == ENGINE_CUBLASLT ? version_of(e) : 0;
    int all = 0, some = 0, at = 0;
    for (int i = 0; i < launch_offers && of_offers; i++)
        if ((launch_offer[i].attention != NULL) == attention) all++, some += taken[i];
    if (e == ENGINE_CUBLASLT)
        at = snprintf(text, 96, "cuBLASLt %zu.%zu.%zu", version / 10000, version / 100 % 100,
                      version % 100);
    else
        at = snprintf(text, 96, "%s", e == ENGINE_CUDNN ? dnn.name : "planc");
    if (e != ENGINE_PLANC && some < all)
        snprintf(text + at, 96 - (size_t)at, " for %d of %d shapes", some, all);
    return text;
}

void engines_say(void)
{
    char a[96], b[96], c[96];
    say("engines: dense products %s, attention %s, experts %s",
        engine_name(engines.gemm, false, false, a), engine_name(engines.attention, true, true, b),
        engine_name(engines.experts, false, true, c));
}
