/* What NCCL is told before its communicators exist, and which memory they know.
 *
 * Environment. A run gives the same bits every time (run.deterministic), so sums must be added in
 * an order that follows from ranks, bytes and topology. NCCL's rings and trees do that; sums in the
 * switches (NVLS, CollNet with SHARP) have an order that nobody states. So these variables are set
 * where the environment has none: NCCL_ALGO to rings and trees, NCCL_PROTO to one protocol, since
 * protocols cut buffers differently over rings, and NVLS and CollNet off, which symmetric kernels
 * heed too. A value of the environment is kept and told, unless it asks for sums in the switch. All
 * ranks must have the same: with other values they would wait for one another.
 *
 * Memory. The arena is NCCL's own, and laid out alike on all ranks. Two stretches of it are
 * registered, in whole pages of 2 MiB, at the same offsets everywhere: the wire segment, where
 * gathers arrive and reductions leave, and the resident gradients, where reductions arrive and sums
 * over replicas stay. Where the library has symmetric windows (2.27) they are windows, which is
 * collective; else each rank registers them for itself. What is not registered is moved through
 * NCCL's own buffers. */
#define _GNU_SOURCE
#include "device.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum { PAGE = 1 << 21, STRETCHES = 2, COMMUNICATORS = 2 };

/* "unhandled system error (…); NCCL_DEBUG=WARN says more" */
const char *nccl_said(unsigned result, nccl_comm comm, char text[NCCL_ERROR])
{
    const char *more = nccl.ncclGetLastError(comm);
    snprintf(text, NCCL_ERROR, "%.80s%s%.300s%s%s", nccl.ncclGetErrorString(result),
             more && *more ? " (" : "", more ? more : "", more && *more ? ")" : "",
             getenv("NCCL_DEBUG") ? "" : "; NCCL_DEBUG=WARN in the environment says more");
    return text;
}

/* ── the environment ─────────────────────────────────────────────────────────── */

/* "NVLS,Ring", "Ring;allreduce:NVLS", but not "^NVLS": algorithms that add in switches */
static const char *names_switches(const char *value)
{
    static const char *const adds[] = {"nvls", "nvlstree", "collnetdirect", "collnetchain"};
    static char found[32];
    bool without = false;
    for (const char *at = value; *at;) {
        if (*at == ';' || *at == ':') without = false;
        if (*at == '^') without = true;
        const size_t n = strcspn(at, ",;:^ ");
        for (size_t i = 0; i < sizeof adds / sizeof *adds && !without; i++)
            if (n == strlen(adds[i]) && !strncasecmp(at, adds[i], n))
                return snprintf(found, sizeof found, "%.*s", (int)n, at), found;
        at += n ? n : 1;
    }
    return NULL;
}

static const char *is_on(const char *value) { return strcmp(value, "0") ? value : NULL; }

static const struct pin {
    const char *name, *value;
    const char *(*contradicts)(const char *value); /* what in it; NULL: nothing does */
} pin[] = {{"NCCL_ALGO", "Ring,Tree", names_switches},
           {"NCCL_PROTO", "Simple", NULL},
           {"NCCL_NVLS_ENABLE", "0", is_on},
           {"NCCL_COLLNET_ENABLE", "0", is_on}};
enum { PINS = sizeof pin / sizeof *pin };
static bool given[PINS]; /* by the environment */

static double hash_of(const char *text)
{
    uint64_t h = 1;
    for (; *text; text++) h = shuffle_mix(h ^ (unsigned char)*text);
    return (double)(h >> 12);
}

bool nccl_environment(void)
{
    double mine[PINS], *all = ROOM(double, PINS *(int64_t)world.size);
    char who[CUDA_WHO];
    bool fine = true;
    for (int i = 0; i < PINS; i++) {
        const char *value = getenv(pin[i].name),
                   *why = value && pin[i].contradicts ? pin[i].contradicts(value) : NULL;
        given[i] = value != NULL;
        if (why)
            fine =
                fail_note("%s: %s=%s of the environment lets switches add (%s), in an order "
                          "that nobody states: a run would not repeat; unset it, or set it to %s",
                          cuda_who(who), pin[i].name, value, why, pin[i].value);
        if (!value) setenv(pin[i].name, pin[i].value, 0);
        mine[i] = hash_of(value ? value : pin[i].value);
    }
    world_exchange(mine, PINS, all);
    for (int r = 1; r < world.size && fine; r++)
        for (int i = 0; i < PINS && fine; i++)
            if (all[PINS * r + i] != all[i])
                fine = fail_note("rank %d has another %s in its environment than rank 0: NCCL "
                                 "would wait for ever; give all ranks the same (mpirun -x %s)",
                                 r, pin[i].name, pin[i].name);
    return fine;
}

/* ── memory ──────────────────────────────────────────────────────────────────── */

struct stretch_of_arena {
    int64_t from, bytes; /* in whole pages */
};
static struct {
    nccl_comm comm;
    nccl_window window;
    void *handle;
} known[STRETCHES * COMMUNICATORS];
static int knowns;
static const char *how = "not at all"; /* they are registered */

/* Resident gradients of all units. */
static int64_t gradient_bytes(void)
{
    int64_t n = 0;
    for (int u = 0; u < program.units; u++)
        n += program.unit[u].count * program.unit[u].shard * (int64_t)sizeof(float);
    return n;
}

static struct stretch_of_arena pages_of(int64_t from, int64_t bytes)
{
    const int64_t end = device_predicted_bytes(), first = from / PAGE * PAGE,
                  behind = (from + bytes + PAGE - 1) / PAGE * PAGE;
    return (struct stretch_of_arena){first, (behind < end ? behind : end) - first};
}

/* Both, or one where they share a page: windows must not overlap. */
static int stretches(struct stretch_of_arena of[STRETCHES])
{
    int n = 0;
    struct stretch_of_arena all[] = {pages_of(program.gradient, gradient_bytes()),
                                     pages_of(program.local_bytes, program.wire_bytes)};
    if (all[0].from > all[1].from) { /* the wire segment has room for others between its slots */
        const struct stretch_of_arena first = all[1];
        all[1] = all[0], all[0] = first;
    }
    for (int i = 0; i < STRETCHES; i++) {
        struct stretch_of_arena *last = n ? &of[n - 1] : NULL;
        if (all[i].bytes <= 0) continue;
        if (last && all[i].from < last->from + last->bytes)
            last->bytes = all[i].from + all[i].bytes > last->from + last->bytes
                              ? all[i].from + all[i].bytes - last->from
                              : last->bytes;
        else
            of[n++] = all[i];
    }
    return n;
}

static void keep(nccl_comm comm, nccl_window window, void *handle)
{
    known[knowns].comm = comm;
    known[knowns].window = window;
    known[knowns++].handle = handle;
}

/* Collective. A rank whose registration fails would move data otherwise than its peers expect, so
 * that ends the run. NULL without an error: these GPUs cannot have windows together. */
static nccl_window window_of(nccl_comm comm, void *at, int64_t bytes)
{
    char text[NCCL_ERROR], who[CUDA_WHO];
    nccl_window window = NULL;
    const unsigned result =
        nccl_windows.ncclCommWindowRegister(comm, at, (size_t)bytes, &window, NCCL_SYMMETRIC);
    if (result != NCCL_OK)
        fail_note("%s: ncclCommWindowRegister of %lld bytes: %s; NCCL_WIN_ENABLE=0 in the "
                  "environment of all ranks does without windows",
                  cuda_who(who), (long long)bytes, nccl_said(result, comm, text));
    world_agree();
    return window;
}

static void register_buffer(nccl_comm comm, void *at, int64_t bytes)
{
    char text[NCCL_ERROR], who[CUDA_WHO];
    void *handle = NULL;
    const unsigned result = nccl.ncclCommRegister(comm, at, (size_t)bytes, &handle);
    if (result == NCCL_OK) {
        keep(comm, NULL, handle);
        return;
    }
    how = "in part";
    say("%s: ncclCommRegister of %lld bytes: %s; they go through NCCL's own buffers", cuda_who(who),
        (long long)bytes, nccl_said(result, comm, text));
}

void nccl_register(struct device *d, const nccl_comm *comm, int comms)
{
    struct stretch_of_arena of[STRETCHES];
    char why[LIBRARY_WHY];
    const int n = stretches(of);
    if (comms == 0) return;
    /* a rank whose library has none would be waited for */
    const double mine = cuda_library_open(LIBRARY_NCCL_WINDOWS, why);
    double *all = ROOM(double, world.size);
    bool windows = true;
    world_exchange(&mine, 1, all);
    for (int r = 0; r < world.size; r++) windows = windows && all[r] != 0;
    how = windows ? "as symmetric windows" : "as buffers: NCCL has symmetric windows from 2.27 on";
    for (int c = 0; c < comms; c++)
        for (int i = 0; i < n; i++) {
            void *at = local(d, of[i].from);
            nccl_window window = windows ? window_of(comm[c], at, of[i].bytes) : NULL;
            if (window) {
                keep(comm[c], window, NULL);
                continue;
            }
            if (windows) how = "as buffers: between these GPUs NCCL has no symmetric windows";
            register_buffer(comm[c], at, of[i].bytes);
        }
}

void nccl_forget(void)
{
    char text[NCCL_ERROR], who[CUDA_WHO];
    for (int i = 0; i < knowns; i++) {
        const unsigned result =
            known[i].window ? nccl_windows.ncclCommWindowDeregister(known[i].comm, known[i].window)
                            : nccl.ncclCommDeregister(known[i].comm, known[i].handle);
        if (result != NCCL_OK)
            fail_now("%s: %s: %s", cuda_who(who),
                     known[i].window ? "ncclCommWindowDeregister" : "ncclCommDeregister",
                     nccl_said(result, known[i].comm, text));
    }
    knowns = 0;
}

/* ── for people ──────────────────────────────────────────────────────────────── */

void nccl_describe(int blocks)
{
    int version = 0, at = 0;
    char text[512];
    if (!nccl_wanted() || nccl.ncclGetVersion(&version) != NCCL_OK) return;
    for (int i = 0; i < PINS && at < (int)sizeof text; i++)
        at += snprintf(text + at, sizeof text - (size_t)at, " %s=%s%s", pin[i].name,
                       getenv(pin[i].name), given[i] ? " (of the environment)" : "");
    say("NCCL %d.%d.%d: so that sums repeat,%s", version / 10000, version % 10000 / 100,
        version % 100, text);
    if (blocks > 0)
        snprintf(text, sizeof text, "at most %d blocks each", blocks);
    else
        snprintf(text, sizeof text, "as many blocks as NCCL likes");
    say("collectives: %s; wire segment and gradients registered %s", text, how);
}
