/* --compare LIB.so: the host runs each kernel of the first step a second time on the same operands
 * and compares the results. So every kernel is checked alone, on the numbers of a real step. LIB.so
 * is described in reference.h. The results of the host never reach the device.
 *
 * Two right results may differ by rounding. The bound depends on what is computed (enum bound),
 * with e = 2^-23 (64 + 4 sqrt(terms)); a unit is one in the last place:
 *   EXACT      no bit
 *   ROUNDED    1 unit in BF16, 2 in F32 (one expression, element by element)
 *   SUMMED     each element: e times the largest, and 1 unit in BF16
 *              as a whole: e, and 2^-9 more in BF16
 *              A sum of n numbers in another order is off by about sqrt(n) roundings of them;
 *              cancellation makes that worse.
 *   PRODUCT    each element: 2^-8 of the sum of |a b| (F32 operands: e of it), and 1 unit in BF16
 *              as a whole: 2^-16 (F32: e) of the norm of those sums, and 2^-9 more in BF16
 *              The sums of |a b| come from the same kernel on absolute values of the operands.
 *   ATTENTION  BF16: each element 2^-6 of the largest, as a whole 2^-7 (weights rounded to BF16)
 *              F32: 2^-15 and 2^-15
 * "As a whole" is the norm of the difference divided by the norm of the result. */
#define _GNU_SOURCE
#include "watch.h"

#include <dlfcn.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "reference.h"

/* A kernel is compared at its first calls, and not at all where the host would take
 * long. */
enum { CALLS = 3, ARGUMENTS = 64 };
#define MOST_FLOPS 6e10
#define MOST_SECONDS 150.0

struct verdict {
    int64_t compared;
    double ulp, relative, of_bound;
    int argument;
};
enum outcome { OUTCOME_ULP, OUTCOME_RELATIVE, OUTCOME_OF_BOUND, OUTCOME_COMPARED, OUTCOMES };

static struct {
    const struct reference *reference;
    struct verdict *verdict;
    double seconds; /* of the host so far */
    /* the current call */
    const struct reference_kernel *kernel; /* NULL: not compared */
    int number;
    /* room for each argument; equal addresses share it; `before`: what was read */
    char *host[ARGUMENTS], *before[ARGUMENTS];
    /* what the host's kernel is given: `host`, shifted where it walks a shard */
    void *address[ARGUMENTS];
} compare;

bool compare_open(const char *path)
{
    char here[4096];
    snprintf(here, sizeof here, "%s%s", strchr(path, '/') ? "" : "./", path);
    struct stat s;
    if (stat(here, &s) != 0) return fail_note("--compare %s: %s", path, strerror(errno));
    if (!S_ISREG(s.st_mode)) return fail_note("--compare %s: it is no library", path);
    void *library = dlopen(here, RTLD_NOW | RTLD_LOCAL);
    if (!library) return fail_note("--compare: %s", dlerror());
    compare.reference = dlsym(library, "reference");
    if (!compare.reference)
        return fail_note("--compare %s: this is no reference.so of planc build --reference", path);
    compare.verdict = ROOM(struct verdict, compare.reference->kernels);
    return true;
}

/* ── one call ────────────────────────────────────────────────────────────────── */

static int64_t size_of(enum stored_type t)
{
    return t == STORED_F64 ? 8 : t == STORED_BF16 ? 2 : 4;
}

/* Elements of an argument that this call is about. */
static int64_t count_of(const struct reference_argument *a, const struct stretch *s)
{
    return a->count ? a->count : s ? s->count : 0;
}

/* Where those begin, in the device's memory. */
static const char *begin_of(const struct reference_argument *a, const void *address,
                            const struct stretch *s)
{
    return (const char *)address + (a->count || !s ? 0 : s->from * size_of(a->type));
}

static void *memory(int64_t bytes)
{
    void *p = aligned_alloc(64, (size_t)(bytes + 63) / 64 * 64 + 64);
    if (!p) fail_now("rank %d: --compare: no memory for %lld bytes", world.rank, (long long)bytes);
    return p;
}

static int find(const struct kernel *k)
{
    for (int i = 0; i < compare.reference->kernels; i++)
        if (!strcmp(compare.reference->kernel[i].kernel->name, k->name)) return i;
    fail_now("--compare: the library knows no kernel %s; it is of another plan", k->name);
}

static bool wanted(const struct reference_kernel *r, const struct verdict *v)
{
    return v->compared < CALLS && r->kernel->flops <= MOST_FLOPS &&
           compare.seconds < MOST_SECONDS && r->arguments <= ARGUMENTS;
}

void compare_before(struct device *d, const struct kernel *k, void *const *address,
                    const struct stretch *s)
{
    const double begun = clock_seconds();
    compare.number = find(k);
    const struct reference_kernel *r = &compare.reference->kernel[compare.number];
    compare.kernel = wanted(r, &compare.verdict[compare.number]) ? r : NULL;
    if (!compare.kernel) return;
    for (int i = 0; i < r->arguments; i++) {
        const struct reference_argument *a = &r->argument[i];
        int64_t bytes = count_of(a, s) * size_of(a->type),
                shift = a->count || !s ? 0 : s->from % 16 * size_of(a->type);
        int same = 0;
        while (same < i && (address[same] != address[i] || !count_of(&r->argument[same], s)))
            same++;
        if (same < i) {
            compare.host[i] = compare.host[same], compare.before[i] = compare.before[same];
        } else {
            compare.host[i] = memory(shift + bytes);
            compare.before[i] = memory(bytes);
            device_read(d, compare.before[i], begin_of(a, address[i], s), bytes);
            memcpy(compare.host[i] + shift, compare.before[i], (size_t)bytes);
        }
        compare.address[i] =
            compare.host[i] + shift - (begin_of(a, address[i], s) - (const char *)address[i]);
    }
    compare.seconds += clock_seconds() - begun;
}

static void let_go(const struct reference_kernel *r)
{
    for (int i = 0; i < r->arguments; i++) {
        bool shared = false;
        for (int k = 0; k < i; k++) shared = shared || compare.host[k] == compare.host[i];
        if (shared) continue;
        free(compare.before[i]);
        free(compare.host[i]);
    }
}

/* ── numbers ─────────────────────────────────────────────────────────────────── */

static double number(enum stored_type t, const void *p, int64_t i)
{
    uint32_t bits;
    float x;
    switch (t) {
    case STORED_F32: return (double)((const float *)p)[i];
    case STORED_F64: return ((const double *)p)[i];
    case STORED_I32: return (double)((const int32_t *)p)[i];
    case STORED_BF16:
        bits = (uint32_t)((const uint16_t *)p)[i] << 16;
        memcpy(&x, &bits, sizeof x);
        return (double)x;
    }
    return 0;
}

static void make_absolute(enum stored_type t, void *p, int64_t n)
{
    for (int64_t i = 0; i < n; i++) switch (t) {
        case STORED_F32: ((float *)p)[i] = fabsf(((float *)p)[i]); break;
        case STORED_F64: ((double *)p)[i] = fabs(((double *)p)[i]); break;
        case STORED_BF16: ((uint16_t *)p)[i] &= 0x7fff; break;
        case STORED_I32: break;
        }
}

static double ulp(enum stored_type t, double x)
{
    int exponent;
    frexp(x, &exponent);
    return t == STORED_BF16  ? ldexp(1, exponent < -125 ? -133 : exponent - 8)
           : t == STORED_F64 ? ldexp(1, exponent - 53)
                             : ldexp(1, exponent < -125 ? -149 : exponent - 24);
}

/* ── the bound ───────────────────────────────────────────────────────────────── */

/* What a result may be off: an element by `ulps` units of itself, `of_largest` of the largest and
 * `of_sums` of its own sum of |a b|; the whole by `of_norm` of its norm and `of_sums_norm` of that
 * of those sums. Integers: the share of them that may be others. */
struct allowance {
    double ulps, of_largest, of_sums, of_norm, of_sums_norm, of_count;
};

static struct allowance allowance_of(const struct reference_kernel *r, enum stored_type t,
                                     bool halves)
{
    const double e = ldexp(64 + 4 * sqrt(r->terms), -23);
    const bool half = t == STORED_BF16;
    const double rounded = half ? ldexp(1, -9) : 0;
    /* of sums, integers are choices: where two are as close as rounding, either is right */
    if (t == STORED_I32) return (struct allowance){.of_count = r->bound == BOUND_SUMMED ? 1e-3 : 0};
    switch (r->bound) {
    case BOUND_EXACT: break;
    case BOUND_ROUNDED:
        return (struct allowance){.ulps = half ? 1 : 2, .of_norm = half ? rounded : ldexp(1, -22)};
    case BOUND_SUMMED:
        return (struct allowance){.ulps = half ? 1 : 0, .of_largest = e, .of_norm = e + rounded};
    case BOUND_PRODUCT:
        return (struct allowance){.ulps = half ? 1 : 0,
                                  .of_sums = halves ? ldexp(1, -8) : e,
                                  .of_norm = rounded,
                                  .of_sums_norm = halves ? ldexp(1, -16) : e};
    case BOUND_ATTENTION:
        return half ? (struct allowance){.of_largest = ldexp(1, -6), .of_norm = ldexp(1, -7)}
                    : (struct allowance){.of_largest = ldexp(1, -15), .of_norm = ldexp(1, -15)};
    }
    return (struct allowance){0};
}

struct result {
    enum stored_type type;
    int64_t count;
    const char *got, *want, *sums;
};

static double ratio(double off, double allowed)
{
    return off == 0 ? 0 : isfinite(off) && allowed > 0 ? off / allowed : INFINITY;
}

static struct verdict judge(const struct result *x, struct allowance may)
{
    struct verdict v = {0};
    if (x->type == STORED_I32 && may.of_count > 0) {
        int64_t others = 0;
        for (int64_t i = 0; i < x->count; i++)
            others += number(x->type, x->got, i) < number(x->type, x->want, i) ||
                      number(x->type, x->got, i) > number(x->type, x->want, i);
        v.of_bound = ratio((double)others, may.of_count * (double)x->count);
        return v;
    }
    double largest = 0, norm = 0, sums_norm = 0, off_norm = 0;
    for (int64_t i = 0; i < x->count; i++) {
        double want = number(x->type, x->want, i), sum = x->sums ? number(x->type, x->sums, i) : 0;
        largest = fmax(largest, fabs(want));
        norm += want * want;
        sums_norm += sum * sum;
    }
    for (int64_t i = 0; i < x->count; i++) {
        double got = number(x->type, x->got, i), want = number(x->type, x->want, i);
        if (got == want || (isnan(got) && isnan(want))) continue;
        double off = isfinite(got) && isfinite(want) ? fabs(got - want) : INFINITY;
        double unit = ulp(x->type, fmax(fabs(want), fabs(got))),
               sum = x->sums ? number(x->type, x->sums, i) : 0;
        off_norm += off * off;
        v.ulp =
            fmax(v.ulp, off / ulp(x->type, fmax(fmax(fabs(want), fabs(got)), ldexp(largest, -10))));
        v.of_bound = fmax(
            v.of_bound, ratio(off, may.ulps * unit + may.of_largest * largest + may.of_sums * sum));
    }
    v.relative = norm > 0 ? sqrt(off_norm / norm) : off_norm > 0 ? INFINITY : 0;
    v.of_bound = fmax(v.of_bound, ratio(sqrt(off_norm), may.of_norm * sqrt(norm) +
                                                            may.of_sums_norm * sqrt(sums_norm)));
    return v;
}

static void keep_worst(struct verdict *all, struct verdict v, int argument)
{
    if (v.of_bound > all->of_bound || (v.of_bound == all->of_bound && v.ulp > all->ulp))
        all->argument = argument;
    all->ulp = fmax(all->ulp, v.ulp);
    all->relative = fmax(all->relative, v.relative);
    all->of_bound = fmax(all->of_bound, v.of_bound);
}

/* The sums of |a b|: in `host`, whose results have been looked at. Operands first, because results
 * may lie in their place. */
static void run_absolute(const struct reference_kernel *r, const struct stretch *s, char **result)
{
    for (int i = 0; i < r->arguments; i++) {
        const struct reference_argument *a = &r->argument[i];
        int64_t n = count_of(a, s);
        if (r->argument[i].written) {
            result[i] = memory(n * size_of(a->type));
            memcpy(result[i], compare.host[i], (size_t)(n * size_of(a->type)));
        }
    }
    for (int i = 0; i < r->arguments; i++) {
        const struct reference_argument *a = &r->argument[i];
        memcpy(compare.host[i], compare.before[i], (size_t)(count_of(a, s) * size_of(a->type)));
        make_absolute(a->type, compare.host[i], count_of(a, s));
    }
    r->kernel->call(compare.address, s);
}

void compare_after(struct device *d, const struct kernel *k, void *const *address,
                   const struct stretch *s)
{
    (void)k;
    const struct reference_kernel *r = compare.kernel;
    if (!r) return;
    const double begun = clock_seconds();
    struct verdict *all = &compare.verdict[compare.number];
    char *want[ARGUMENTS] = {0};
    bool halves = false;
    r->kernel->call(compare.address, s);
    if (r->bound == BOUND_PRODUCT) run_absolute(r, s, want);
    for (int i = 0; i < r->arguments; i++)
        halves = halves || (!r->argument[i].written && r->argument[i].type == STORED_BF16);
    for (int i = 0; i < r->arguments; i++) {
        const struct reference_argument *a = &r->argument[i];
        int64_t n = count_of(a, s), bytes = n * size_of(a->type);
        if (!a->written || n == 0) continue;
        char *got = memory(bytes), *host = (char *)(uintptr_t)begin_of(a, compare.address[i], s);
        device_read(d, got, begin_of(a, address[i], s), bytes);
        struct result x = {.type = a->type,
                           .count = n,
                           .got = got,
                           .want = want[i] ? want[i] : host,
                           .sums = want[i] ? host : NULL};
        keep_worst(all, judge(&x, allowance_of(r, a->type, halves)), i);
        free(got);
        free(want[i]);
    }
    all->compared++;
    let_go(r);
    compare.seconds += clock_seconds() - begun;
}

/* ── the table ───────────────────────────────────────────────────────────────── */

/* Of all ranks, the worst of each kernel. */
static double *worst_of_all(int kernels)
{
    double *mine = ROOM(double, (int64_t)OUTCOMES *kernels),
           *all = ROOM(double, (int64_t)OUTCOMES *kernels *world.size);
    for (int i = 0; i < kernels; i++) {
        const struct verdict *v = &compare.verdict[i];
        double *to = mine + (int64_t)OUTCOMES * i;
        to[OUTCOME_ULP] = v->ulp, to[OUTCOME_RELATIVE] = v->relative,
        to[OUTCOME_OF_BOUND] = v->of_bound, to[OUTCOME_COMPARED] = (double)v->compared;
    }
    world_exchange(mine, (int64_t)OUTCOMES * kernels, all);
    for (int r = 0; r < world.size; r++)
        for (int i = 0; i < OUTCOMES * kernels; i++)
            mine[i] = fmax(mine[i], all[(int64_t)r * OUTCOMES * kernels + i]);
    return mine;
}

bool compare_close(void)
{
    static const char *const bound[] = {"exact", "rounded", "summed", "product", "attention"};
    const int kernels = compare.reference->kernels;
    const double *worst = worst_of_all(kernels);
    int compared = 0, beyond = 0, at = -1;
    say("compare: %-36s %-18s %-9s %5s %11s %11s %9s  %s", "kernel", "class", "bound", "calls",
        "units", "relative", "of bound", "worst in");
    for (int i = 0; i < kernels; i++) {
        const struct reference_kernel *r = &compare.reference->kernel[i];
        const double *w = worst + (int64_t)OUTCOMES * i;
        if (w[OUTCOME_COMPARED] == 0) {
            say("compare: %-36s %-18s %-9s not compared: %s", r->kernel->name, r->class,
                bound[r->bound],
                r->kernel->flops > MOST_FLOPS     ? "too large for the host"
                : compare.seconds >= MOST_SECONDS ? "no time left"
                                                  : "not called");
            continue;
        }
        compared++;
        bool is_beyond = !(w[OUTCOME_OF_BOUND] <= 1);
        beyond += is_beyond;
        if (at < 0 || w[OUTCOME_OF_BOUND] > worst[(int64_t)OUTCOMES * at + OUTCOME_OF_BOUND])
            at = i;
        say("compare: %-36s %-18s %-9s %5.0f %11.4g %11.3e %9.3g  %s%s", r->kernel->name, r->class,
            bound[r->bound], w[OUTCOME_COMPARED], w[OUTCOME_ULP], w[OUTCOME_RELATIVE],
            w[OUTCOME_OF_BOUND], r->arguments ? r->argument[compare.verdict[i].argument].name : "",
            is_beyond ? "  BEYOND" : "");
    }
    say("compare: %d of %d kernels, worst %.3g of its bound (%s), %d beyond their bounds", compared,
        kernels, at < 0 ? 0 : worst[(int64_t)OUTCOMES * at + OUTCOME_OF_BOUND],
        at < 0 ? "none" : compare.reference->kernel[at].kernel->name, beyond);
    if (beyond)
        return fail_note("--compare: %d of %d kernels are beyond what rounding may do; see the "
                         "lines marked BEYOND",
                         beyond, compared);
    return true;
}
