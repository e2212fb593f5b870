/* Measures for `planc calibrate` what trainers call on cpu: matrix products, grouped products,
 * attention, copies, collectives, and what a collective and compute take from each other. It is
 * compiled and started as a trainer is, from the same templates and the same library, so what is
 * measured is what runs. All ranks work at the same time and the slowest counts.
 *     mpirun -n RANKS measure WHAT SECONDS
 *     WHAT      compute, or collectives
 *     SECONDS   that a figure may take
 * Prints a line a figure: CLASS ENGINE TYPE OP ORDER RANKS X Y Z VALUE, "-" where there is nothing.
 * Values: GFLOP/s of products; seconds of a call of attention; ns an element of a copied element;
 * GB/s read and written; microseconds of a collective; parts of a speed. */
#define _GNU_SOURCE
#include "cpu/attention.h"
#include "cpu/experts.h"
#include "program.h"
#include "world.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

enum { ROOM_BYTES = 128 << 20, MOST_RANKS = 256 };

/* of runtime/cpu/neighbours.h, which only the library itself includes */
void neighbours_map(void *at, int64_t bytes);
void neighbours_populated(void);
int64_t neighbours_align(const void *at);
enum { LARGE_PAGE = 2 << 20 };

/* A trainer's kernels are called with addresses that change; these are of a size that caches hold
 * or do not hold, as a trainer's are. */
static double each; /* seconds that a figure may take */
static char *bytes;
static void *room_a, *room_b, *room_c, *room_d, *room_e, *room_f, *room_g, *room_h;

_Noreturn static void stop(const char *why)
{
    fprintf(stderr, "measure: %s\n", why);
    exit(4);
}

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Of what each rank measured. */
static double largest(double mine)
{
    double all[MOST_RANKS], most = 0;
    world_exchange(&mine, 1, all);
    for (int r = 0; r < world.size; r++)
        if (all[r] > most) most = all[r];
    return most;
}

/* Seconds of one call: the least of a few batches, of the slowest rank. All ranks call equally
 * often. */
#define MEASURE(result, call)                                                 \
    do {                                                                      \
        call;                                                                 \
        world_host_barrier();                                                 \
        double begin_ = now(), best_ = 1e9;                                   \
        call;                                                                 \
        double once_ = largest(now() - begin_);                               \
        int64_t calls_ = (int64_t)(each / 4 / (once_ > 1e-8 ? once_ : 1e-8)); \
        if (calls_ < 1) calls_ = 1;                                           \
        int batches_ = once_ > each ? 1 : once_ > each / 4 ? 2 : 4;           \
        world_host_barrier();                                                 \
        for (int batch_ = 0; batch_ < batches_; batch_++) {                   \
            begin_ = now();                                                   \
            for (int64_t i_ = 0; i_ < calls_; i_++) call;                     \
            double took_ = (now() - begin_) / (double)calls_;                 \
            if (took_ < best_) best_ = took_;                                 \
        }                                                                     \
        result = largest(best_);                                              \
    } while (0)

static void print(const char *class, const char *engine, const char *type, const char *op,
                  const char *order, int64_t x, int64_t y, int64_t z, double value)
{
    if (world.rank == 0)
        printf("%s %s %s %s %s %d %lld %lld %lld %.6g\n", class, engine, type, op, order,
               world.size, (long long)x, (long long)y, (long long)z, value);
}

/* ── products ────────────────────────────────────────────────────────────────── */
static const int64_t side[] = {16, 32, 64, 128, 256, 512, 1024, 4096};
enum { SIDES = sizeof side / sizeof *side };

static void products(enum element type)
{
    static const char *const order[] = {"nn", "nt", "tn"};
    for (int o = 0; o < 3; o++)
        for (int i = 0; i < SIDES; i++)
            for (int j = 0; j < SIDES; j++)
                for (int l = 0; l < SIDES; l++) {
                    int64_t m = side[i], n = side[j], k = side[l];
                    if ((double)m * (double)n * (double)k > 1.4e8) continue;
                    bool ta = o == 2, tb = o == 1;
                    struct operand a = {type, ta, room_a, ta ? m : k},
                                   b = {type, tb, room_b, tb ? k : n};
                    /* weight gradients (tn) are sums in F32, the others are rounded */
                    enum element to = o == 2 ? ELEMENT_F32 : type;
                    double seconds;
                    MEASURE(seconds, product_of(m, n, k, a, b, false, to, room_c, n));
                    print("gemm", "onednn", type == ELEMENT_F32 ? "fp32" : "bf16", "-", order[o], m,
                          n, k, 2e-9 * (double)m * (double)n * (double)k / seconds);
                }
}

static void grouped(enum element type)
{
    static const int64_t rows[] = {4, 16, 64, 256, 1024}, width[] = {32, 128, 512, 1024};
    const int64_t experts = 8;
    const char *name = type == ELEMENT_F32 ? "fp32" : "bf16";
    for (int i = 0; i < 5; i++)
        for (int j = 0; j < 4; j++)
            for (int l = 0; l < 4; l++) {
                int64_t n = width[j], k = width[l];
                if (rows[i] * n * k > (int64_t)5e7 || rows[i] * experts * (n > k ? n : k) > 4 << 20)
                    continue;
                int32_t first[9];
                for (int e = 0; e <= experts; e++) first[e] = (int32_t)(e * rows[i]);
                double flops = 2e-9 * (double)(rows[i] * experts * n * k), seconds;
                struct operand z = {type, false, room_a, 0}, w = {type, false, room_b, 0};
                MEASURE(seconds, expert_matmul_of(z, w, first, type, room_c, experts, k, n, false));
                print("grouped_gemm", "planc", name, "-", "nt", rows[i], n, k, flops / seconds);
                MEASURE(seconds, expert_matmul_of(z, w, first, type, room_c, experts, k, n, true));
                print("grouped_gemm", "planc", name, "-", "nn", rows[i], k, n, flops / seconds);
                /* dW[n,k] sums over the rows: columns, then rows of it */
                MEASURE(seconds, expert_matmul_grad_of(z, w, first, room_c, experts, k, n));
                print("grouped_gemm", "planc", name, "-", "tn", rows[i], k, n, flops / seconds);
            }
}

/* ── attention ───────────────────────────────────────────────────────────────── */
/* HEADS heads over one sequence. FLOPs as the compiler counts them: op_flops().run of ops.c. */
enum { HEADS = 4 };
#define ATTENTION_OF(type, width)                                                             \
    attention_of(type, room_a, room_b, room_c, room_d, room_e, sequence, HEADS, HEADS, width, \
                 sequence, scale, (struct attention_rule){0})
#define GRADIENT_OF(type, width)                                                                \
    attention_grad_of(type, room_a, room_b, room_c, room_d, room_e, room_f, room_g, room_h,     \
                      (char *)room_h + (8 << 20), (void *)bytes, sequence, HEADS, HEADS, width, \
                      sequence, scale, (struct attention_rule){0})
#define AT_WIDTH(type, width)                                                        \
    do {                                                                             \
        double seconds;                                                              \
        MEASURE(seconds, ATTENTION_OF(type, width));                                 \
        print("attention", "planc", name, "-", "any", sequence, width, 0,            \
              2e-9 * (double)sequence * (double)sequence * HEADS * width / seconds); \
        MEASURE(seconds, GRADIENT_OF(type, width));                                  \
        print("attention_grad", "planc", name, "-", "any", sequence, width, 0,       \
              5e-9 * (double)sequence * (double)sequence * HEADS * width / seconds); \
    } while (0)

static void attentions(void)
{
    static const int64_t lengths[] = {32, 64, 128, 256, 512, 1024, 2048};
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        int64_t sequence = lengths[i];
        const float scale = 0.1f;
        const char *name = "fp32";
        AT_WIDTH(ELEMENT_F32, 16);
        AT_WIDTH(ELEMENT_F32, 32);
        AT_WIDTH(ELEMENT_F32, 64);
        AT_WIDTH(ELEMENT_F32, 128);
        name = "bf16";
        AT_WIDTH(ELEMENT_BF16, 16);
        AT_WIDTH(ELEMENT_BF16, 32);
        AT_WIDTH(ELEMENT_BF16, 64);
        AT_WIDTH(ELEMENT_BF16, 128);
    }
}

/* ── copies ──────────────────────────────────────────────────────────────────── */
static void copies(void)
{
    for (int64_t n = 4 << 10; n <= 64 << 20; n *= 4) {
        double seconds;
        MEASURE(seconds, memcpy(bytes + n / 2, bytes, (size_t)n / 2));
        print("map", "planc", "fp32", "copy", "any", n, 0, 0, 1e9 * seconds / (double)(n / 8));
        print("map", "planc", "bf16", "copy", "any", n, 0, 0, 1e9 * seconds / (double)(n / 4));
        print("copy", "planc", "any", "-", "any", n, 0, 0, 1e-9 * (double)n / seconds);
    }
}

/* ── collectives ─────────────────────────────────────────────────────────────── */
/* As in a trainer, a thread of its own moves and the other one computes or waits; handing a
 * collective over and being told of its end is part of its time. */
enum moved { GATHER, REDUCE_SCATTER, ALL_REDUCE, SUM, END };
static struct {
    pthread_mutex_t lock;
    pthread_cond_t work, done;
    pthread_t thread;
    enum moved what;
    int64_t count; /* elements of a part, numbers of a sum */
    int64_t issued, completed;
    double ended;
} lane = {.lock = PTHREAD_MUTEX_INITIALIZER,
          .work = PTHREAD_COND_INITIALIZER,
          .done = PTHREAD_COND_INITIALIZER};

static const void *in_room_b(const void *of, int64_t at, int64_t n, void *to)
{
    return (void)of, (void)n, (void)to, (const char *)room_b + 4 * at;
}

/* What a trainer's thread does. */
static void move(enum moved what, int64_t count)
{
    switch (what) {
    case GATHER: collective_gather(bytes, count, 4, in_room_b, NULL); break;
    case REDUCE_SCATTER:
        collective_reduce_scatter((float *)bytes, room_b, room_c, count, true);
        break;
    case ALL_REDUCE: collective_all_reduce(room_b, count); break;
    case SUM: memset(room_d, 0, 8 * 64), collective_sum(room_d, count, true); break;
    case END: break;
    }
}

static void *mover(void *nothing)
{
    for (bool more = true; more;) {
        pthread_mutex_lock(&lane.lock);
        while (lane.completed == lane.issued) pthread_cond_wait(&lane.work, &lane.lock);
        const enum moved what = lane.what;
        pthread_mutex_unlock(&lane.lock);
        move(what, lane.count);
        lane.ended = now();
        more = what != END;
        pthread_mutex_lock(&lane.lock);
        lane.completed++;
        pthread_cond_broadcast(&lane.done);
        pthread_mutex_unlock(&lane.lock);
    }
    return nothing;
}

static void hand_over(enum moved what, int64_t count)
{
    pthread_mutex_lock(&lane.lock);
    lane.what = what, lane.count = count;
    lane.issued++;
    pthread_cond_signal(&lane.work);
    pthread_mutex_unlock(&lane.lock);
}

static bool is_over(void)
{
    pthread_mutex_lock(&lane.lock);
    bool over = lane.completed == lane.issued;
    pthread_mutex_unlock(&lane.lock);
    return over;
}

static void wait_for_it(void)
{
    pthread_mutex_lock(&lane.lock);
    while (lane.completed < lane.issued) pthread_cond_wait(&lane.done, &lane.lock);
    pthread_mutex_unlock(&lane.lock);
}

static int rising(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static double product_seconds; /* of one */
static double taken[64];       /* by collectives and sizes: what they take of the core */
static int takens;
static struct operand one, other;
static void compute(void) { product_of(128, 64, 128, one, other, false, ELEMENT_F32, room_g, 64); }

static double middle(double *x, int n)
{
    qsort(x, (size_t)n, sizeof *x, rising);
    return x[n / 2];
}

/* While its rank and the others compute: from its issue to its end, and what compute loses
 * meanwhile as a part of that. Medians, since now and then a rank waits for a whole turn of the
 * scheduler; before each one compute has the machine to itself. */
static double while_computing(enum moved what, int64_t count)
{
    enum { TIMES = 21 };
    double took[TIMES], lost[TIMES], all_took[TIMES];
    for (int i = 0; i < TIMES; i++) {
        int64_t calls = 0;
        world_host_barrier();
        for (double begin = now(); now() - begin < 5e-4;) compute();
        const double begin = now();
        for (hand_over(what, count); !is_over(); calls++) compute();
        lost[i] = now() - begin - (double)calls * product_seconds;
        took[i] = lane.ended - begin;
        all_took[i] = largest(took[i]);
    }
    const double part = middle(lost, TIMES) / middle(took, TIMES);
    taken[takens++] = part < 0 ? 0 : part > 1 ? 1 : part;
    return middle(all_took, TIMES);
}

/* `mpi`: compute waits; `mpi_busy`: it computes. */
static void collective(const char *name, enum moved what, int64_t count, int64_t size)
{
    double seconds;
    MEASURE(seconds, (hand_over(what, count), wait_for_it()));
    print(name, "mpi", "any", "-", "any", size, 0, 0, 1e6 * seconds);
    if (what == SUM) return;
    print(name, "mpi_busy", "any", "-", "any", size, 0, 0, 1e6 * while_computing(what, count));
}

/* With one rank nothing is moved, and what is left is handing over and being told; and what handing
 * over takes from compute. Before each one compute runs for longer than a processor waits until it
 * puts an idle core to sleep, as in a trainer: waking the thread that moves, and then the one that
 * waits, is most of it. */
static void alone(void)
{
    enum { TIMES = 101 };
    double issue[TIMES], told[TIMES];
    static const enum moved what[] = {SUM, GATHER};
    for (int k = 0; k < 2; k++) {
        for (int i = 0; i < TIMES; i++) {
            for (double begin = now(); now() - begin < 3e-4;) compute();
            const double begin = now();
            hand_over(what[k], what[k] == SUM ? 1 : 64);
            issue[i] = now() - begin;
            wait_for_it();
            told[i] = now() - begin;
        }
        print(what[k] == SUM ? "sum" : "gather", "mpi", "any", "-", "any",
              what[k] == SUM ? 8 : 1024, 0, 0, 1e6 * middle(told, TIMES));
    }
    print("host", "issue", "-", "-", "-", 0, 0, 0, middle(issue, TIMES));
}

static void collectives(void)
{
    const int64_t n = world.size;
    one = (struct operand){ELEMENT_F32, false, room_e, 128};
    other = (struct operand){ELEMENT_F32, true, room_f, 128};
    MEASURE(product_seconds, compute());
    if (n == 1) {
        alone();
        return;
    }
    for (int64_t part = 1 << 10; part <= ROOM_BYTES / 4 / n; part *= 4) {
        if (program.fsdp > 1) {
            collective("gather", GATHER, part / 4, part);
            collective("reduce_scatter", REDUCE_SCATTER, part / 4, part);
        } else
            collective("all_reduce", ALL_REDUCE, part / 4, part);
        memset(room_b, 0, (size_t)part); /* sums of sums would not stay finite */
        memset(room_c, 0, (size_t)part);
    }
    for (int64_t count = 1; count <= 64 && program.fsdp > 1; count *= 8)
        collective("sum", SUM, count, 8 * count);
    if (program.fsdp > 1)
        print("contention", "core", "-", "-", "-", 0, 0, 0, largest(middle(taken, takens)));
}

/* ── the program ─────────────────────────────────────────────────────────────── */
static void *some(int64_t count)
{
    char *at =
        mmap(NULL, (size_t)count, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED) stop("no memory to measure in");
    madvise(at, (size_t)count, MADV_HUGEPAGE); /* as a trainer's arena */
    /* both halves are BF16 numbers of about 0.01, and so is the whole */
    for (int64_t i = 0; i < count / 4; i++) {
        uint32_t half = 0x3c00u | (uint32_t)(i * 7 % 113), word = half << 16 | half;
        memcpy(at + 4 * i, &word, 4);
    }
    return at;
}

int main(int argc, char **argv)
{
    world_open(&argc, &argv);
    if (argc != 3 || world.size > MOST_RANKS) stop("usage: measure compute|collectives SECONDS");
    each = atof(argv[2]);
    world_split();
    world_met();
    bytes = some(ROOM_BYTES + LARGE_PAGE);
    bytes += neighbours_align(bytes);
    room_b = some(ROOM_BYTES / 2), room_c = some(ROOM_BYTES / 2);
    room_a = some(ROOM_BYTES / 4), room_d = some(ROOM_BYTES / 4), room_e = some(ROOM_BYTES / 8);
    room_f = some(ROOM_BYTES / 8), room_g = some(ROOM_BYTES / 8), room_h = some(ROOM_BYTES / 8);
    if (!strcmp(argv[1], "collectives")) {
        /* slots of collectives lie in `bytes`: a trainer's are where its neighbours use them */
        if (world.size > 1) neighbours_map(bytes, program.fsdp > 1 ? ROOM_BYTES : 0);
        memset(bytes, 0, ROOM_BYTES);
        neighbours_populated();
        if (pthread_create(&lane.thread, NULL, mover, NULL)) stop("no thread for collectives");
        collectives();
        hand_over(END, 0);
        pthread_join(lane.thread, NULL);
    } else {
        copies();
        products(ELEMENT_F32);
        products(ELEMENT_BF16);
        grouped(ELEMENT_F32);
        grouped(ELEMENT_BF16);
        attentions();
    }
    fflush(stdout);
    world_leave(0);
}
