/* Measures the kernels that trainers call, for `planc calibrate`: matrix products, products by
 * experts, attention, and moves, by shape, with 1 and with R processes at work. It is compiled as a
 * trainer's kernels are and calls the same templates and the same library, so what is measured is
 * what runs. Each process is a copy of this one, as each rank is; they meet before every figure.
 *     measure RANKS SECONDS      SECONDS: how long all of it may take
 * Prints a line a figure: CLASS TYPE ORDER RANKS AXIS AXIS AXIS VALUE. Values are GFLOP/s of one
 * process while all RANKS compute, or ns an element; the slowest process counts. */
#define _GNU_SOURCE
#include "cpu/attention.h"
#include "cpu/embedding.h"
#include "cpu/experts.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { MOST_RANKS = 64, ROOM_BYTES = 96 << 20 };

struct meeting {
    atomic_int arrived, phase;
    double seconds[MOST_RANKS];
};
static struct meeting *meeting;
static int ranks, rank;
static double each; /* seconds that a figure may take */
static char *bytes; /* operands: never all zeros, never infinite */
static void *room_a, *room_b, *room_c, *room_d, *room_e, *room_f, *room_g, *room_h;

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void meet(void)
{
    int phase = atomic_load(&meeting->phase);
    if (atomic_fetch_add(&meeting->arrived, 1) + 1 == ranks) {
        atomic_store(&meeting->arrived, 0);
        atomic_fetch_add(&meeting->phase, 1);
    } else
        while (atomic_load(&meeting->phase) == phase) usleep(20);
}

/* Seconds of one call: the least of a few batches, the largest of the processes. */
#define MEASURE(result, call)                                                                    \
    do {                                                                                         \
        meet();                                                                                  \
        call;                                                                                    \
        double begin_ = now(), once_, best_ = 1e9;                                               \
        call;                                                                                    \
        once_ = now() - begin_;                                                                  \
        int64_t calls_ = (int64_t)(each / 5 / (once_ > 1e-8 ? once_ : 1e-8));                    \
        if (calls_ < 1) calls_ = 1;                                                              \
        meet();                                                                                  \
        for (int batch_ = 0; batch_ < 4; batch_++) {                                             \
            begin_ = now();                                                                      \
            for (int64_t i_ = 0; i_ < calls_; i_++) call;                                        \
            double took_ = (now() - begin_) / (double)calls_;                                    \
            if (took_ < best_) best_ = took_;                                                    \
        }                                                                                        \
        meeting->seconds[rank] = best_;                                                          \
        meet();                                                                                  \
        result = 0;                                                                              \
        for (int r_ = 0; r_ < ranks; r_++)                                                       \
            if (meeting->seconds[r_] > result) result = meeting->seconds[r_];                    \
    } while (0)

static void print(const char *class, const char *type, const char *order, int64_t x, int64_t y,
                  int64_t z, double value)
{
    if (rank == 0)
        printf("%s %s %s %d %lld %lld %lld %.6g\n", class, type, order, ranks, (long long)x,
               (long long)y, (long long)z, value);
}

/* ── products ────────────────────────────────────────────────────────────────── */
static const int64_t side[] = {16, 64, 256, 1024, 2048};
enum { SIDES = sizeof side / sizeof *side };

static void products(enum element type)
{
    static const char *const order[] = {"nn", "nt", "tn"};
    for (int o = 0; o < 3; o++)
        for (int i = 0; i < SIDES; i++)
            for (int j = 0; j < SIDES; j++)
                for (int l = 0; l < SIDES; l++) {
                    int64_t m = side[i], n = side[j], k = side[l];
                    if ((double)m * (double)n * (double)k > 1.1e9) continue;
                    bool ta = o == 2, tb = o == 1;
                    struct operand a = {type, ta, room_a, ta ? m : k},
                                   b = {type, tb, room_b, tb ? k : n};
                    /* weight gradients (tn) are sums in F32, the others are rounded */
                    enum element to = o == 2 ? ELEMENT_F32 : type;
                    double seconds;
                    MEASURE(seconds, product_of(m, n, k, a, b, false, to, room_c, n));
                    print("gemm", type == ELEMENT_F32 ? "fp32" : "bf16", order[o], m, n, k,
                          2e-9 * (double)m * (double)n * (double)k / seconds);
                }
}

static void grouped(enum element type)
{
    static const int64_t rows[] = {4, 16, 64, 256}, width[] = {32, 128, 512};
    const int64_t experts = 8;
    const char *name = type == ELEMENT_F32 ? "fp32" : "bf16";
    for (int i = 0; i < 4; i++)
        for (int j = 0; j < 3; j++)
            for (int l = 0; l < 3; l++) {
                int64_t n = width[j], k = width[l];
                int32_t first[9];
                for (int e = 0; e <= experts; e++) first[e] = (int32_t)(e * rows[i]);
                double flops = 2e-9 * (double)(rows[i] * experts * n * k), seconds;
                struct operand z = {type, false, room_a, 0}, w = {type, false, room_b, 0};
                MEASURE(seconds, expert_matmul_of(z, w, first, type, room_c, experts, k, n, false));
                print("grouped_gemm", name, "nt", rows[i], n, k, flops / seconds);
                MEASURE(seconds, expert_matmul_of(z, w, first, type, room_c, experts, k, n, true));
                print("grouped_gemm", name, "nn", rows[i], n, k, flops / seconds);
                /* dW[n,k] sums over the rows */
                MEASURE(seconds, expert_matmul_grad_of(z, w, first, room_c, experts, k, n));
                print("grouped_gemm", name, "tn", rows[i], n, k, flops / seconds);
            }
}

/* ── attention ───────────────────────────────────────────────────────────────── */
/* FLOPs as the compiler counts them are put in by planc: here a line has seconds a call, of HEADS
 * heads over one sequence. */
enum { HEADS = 4 };
#define ATTENTION_OF(type, width)                                                                \
    attention_of(type, room_a, room_b, room_c, room_d, room_e, sequence, HEADS, HEADS, width,     \
                 sequence, scale)
#define GRADIENT_OF(type, width)                                                                 \
    attention_grad_of(type, room_a, room_b, room_c, room_d, room_e, room_f, room_g, room_h,       \
                      (char *)room_h + (8 << 20), (void *)bytes, sequence, HEADS, HEADS, width,   \
                      sequence, scale)
#define AT_WIDTH(type, width)                                                                    \
    do {                                                                                         \
        double seconds;                                                                          \
        MEASURE(seconds, ATTENTION_OF(type, width));                                             \
        print("attention", name, "any", sequence, width, HEADS, seconds);                        \
        MEASURE(seconds, GRADIENT_OF(type, width));                                              \
        print("attention_grad", name, "any", sequence, width, HEADS, seconds);                   \
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

/* ── the program ─────────────────────────────────────────────────────────────── */
static void *some(int64_t count)
{
    float *at = mmap(NULL, (size_t)count, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED) {
        fprintf(stderr, "measure: no memory\n");
        exit(4);
    }
    /* both halves are BF16 numbers of about 0.01, and so is the whole */
    for (int64_t i = 0; i < count / 4; i++) {
        uint32_t half = 0x3c00u | (uint32_t)(i * 7 % 113), word = half << 16 | half;
        memcpy(at + i, &word, 4);
    }
    return at;
}

int main(int argc, char **argv)
{
    if (argc != 3) return 3;
    ranks = atoi(argv[1]);
    each = atof(argv[2]);
    if (ranks < 1 || ranks > MOST_RANKS) return 3;
    meeting = mmap(NULL, sizeof *meeting, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (meeting == MAP_FAILED) return 4;
    for (int r = 1; r < ranks; r++) {
        pid_t child = fork();
        if (child < 0) return 4;
        if (child == 0) {
            rank = r;
            break;
        }
    }
    bytes = some(16 << 20);
    room_a = some(16 << 20), room_b = some(16 << 20), room_c = some(16 << 20);
    room_d = some(16 << 20), room_e = some(16 << 20), room_f = some(16 << 20);
    room_g = some(16 << 20), room_h = some(16 << 20);
    products(ELEMENT_F32);
    products(ELEMENT_BF16);
    grouped(ELEMENT_F32);
    grouped(ELEMENT_BF16);
    attentions();
    if (rank) return 0;
    int status, worst = 0;
    while (wait(&status) > 0) worst |= status;
    return worst ? 4 : 0;
}
