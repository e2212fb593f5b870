/* The stand-in libraries by themselves: check MODULE CASE. Cases that must come out right end with
 * 0; planted mistakes (a wait left out, ranks that disagree, addresses of the host) print what
 * became of them. */
#define _GNU_SOURCE
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cuda/library.h"

#define DECLARED(name, symbol, parameters) extern unsigned symbol parameters;
CUDA_DRIVER_CALLS(DECLARED)
CUDA_NCCL_CALLS(DECLARED)
CUDA_CUBLASLT_CALLS(DECLARED)

static void must(unsigned result, const char *what, int line)
{
    if (result) {
        printf("line %d: %s gives %u\n", line, what, result);
        exit(1);
    }
}
#define MUST(call) must((call), #call, __LINE__)
#define WANT(condition) must(!(condition), #condition, __LINE__)

enum { N = 1000 };
static cuda_stream stream[3];
static cuda_event event[3];
static cuda_function add_one, deadlock, strays;
static cuda_address memory[4];

static void begin(const char *path)
{
    cuda_context context;
    cuda_module module;
    int device, least, greatest;
    static char image[4 << 20];
    FILE *file = fopen(path, "rb");
    MUST(cuInit(0));
    MUST(cuDeviceGet(&device, 0));
    MUST(cuDevicePrimaryCtxRetain(&context, device));
    MUST(cuCtxSetCurrent(context));
    MUST(cuCtxGetStreamPriorityRange(&least, &greatest));
    WANT(file && fread(image, 1, sizeof image, file) > 0);
    fclose(file);
    MUST(cuModuleLoadData(&module, image));
    MUST(cuModuleGetFunction(&add_one, module, "add_one"));
    MUST(cuModuleGetFunction(&deadlock, module, "deadlock"));
    MUST(cuModuleGetFunction(&strays, module, "strays"));
    for (int i = 0; i < 3; i++) {
        MUST(cuStreamCreateWithPriority(&stream[i], CUDA_STREAM_NON_BLOCKING, 0));
        MUST(cuEventCreate(&event[i], CUDA_EVENT_DEFAULT));
    }
    for (int i = 0; i < 4; i++) MUST(cuMemAlloc_v2(&memory[i], N * sizeof(float)));
}
static void adds(int from, int to, int s)
{
    int64_t n = N;
    void *argument[] = {&memory[from], &memory[to], &n};
    MUST(cuLaunchKernel(add_one, (N + 127) / 128, 1, 1, 128, 1, 1, 0, stream[s], argument, NULL));
    memset(argument, 0, sizeof argument); /* the launch has copied them */
    n = 0;
}
static float value_of(int m)
{
    float value[N];
    MUST(cuMemcpyDtoHAsync_v2(value, memory[m], sizeof value, stream[0]));
    for (int i = 1; i < N; i++) WANT(value[i] == value[0] || value[0] != value[0]);
    return value[0];
}
static void zero(int m) { MUST(cuMemsetD8Async(memory[m], 0, N * sizeof(float), stream[0])); }

/* a on stream 0, b = a + 1 on 1, c = b + 1 on 0; with the waits, or without one of them */
static float chain(bool with_wait)
{
    zero(0);
    adds(0, 1, 0);
    MUST(cuEventRecord(event[0], stream[0]));
    MUST(cuStreamWaitEvent(stream[1], event[0], 0));
    for (int i = 0; i < 5; i++) adds(1, 1, 1);
    MUST(cuEventRecord(event[1], stream[1]));
    if (with_wait) MUST(cuStreamWaitEvent(stream[0], event[1], 0));
    adds(1, 2, 0);
    float c = value_of(2);
    MUST(cuStreamSynchronize(stream[1]));
    return c;
}
static void streams(void)
{
    float milliseconds;
    for (int i = 0; i < 30; i++) WANT(chain(true) == 7.0f);
    MUST(cuEventElapsedTime(&milliseconds, event[0], event[1]));
    WANT(milliseconds >= 0.0f);
    /* pageable memory is read at the call, pinned memory when its turn comes */
    float *pinned, pageable[N];
    MUST(cuMemHostAlloc((void **)&pinned, N * sizeof(float), CUDA_HOST_PORTABLE));
    for (int i = 0; i < N; i++) pinned[i] = pageable[i] = 5.0f;
    MUST(cuMemcpyHtoDAsync_v2(memory[3], pageable, sizeof pageable, stream[0]));
    for (int i = 0; i < N; i++) pageable[i] = 9.0f;
    WANT(value_of(3) == 5.0f);
    MUST(cuMemcpyHtoDAsync_v2(memory[3], pinned, sizeof pageable, stream[0]));
    MUST(cuStreamSynchronize(stream[0]));
    WANT(value_of(3) == 5.0f);
    MUST(cuMemFreeHost(pinned));
    float poison;
    MUST(cuMemFree_v2(memory[2]));
    MUST(cuMemAlloc_v2(&memory[2], N * sizeof(float)));
    poison = value_of(2);
    WANT(poison != poison);
    size_t available, total;
    MUST(cuMemGetInfo_v2(&available, &total));
    WANT(total - available == 4 * N * sizeof(float));
    cuda_address much;
    WANT(cuMemAlloc_v2(&much, total) == CUDA_OUT_OF_MEMORY);
}
static void graphs(void)
{
    cuda_graph graph;
    cuda_graph_exec exec;
    MUST(cuStreamBeginCapture_v2(stream[0], CUDA_CAPTURE_RELAXED));
    adds(0, 1, 0);
    MUST(cuEventRecord(event[0], stream[0]));
    MUST(cuStreamWaitEvent(stream[1], event[0], 0));
    adds(1, 2, 1);
    adds(2, 2, 1);
    MUST(cuEventRecord(event[1], stream[1]));
    adds(1, 3, 0);
    MUST(cuStreamWaitEvent(stream[0], event[1], 0));
    adds(2, 0, 0);
    MUST(cuStreamEndCapture(stream[0], &graph));
    MUST(cuGraphInstantiateWithFlags(&exec, graph, 8));
    MUST(cuGraphDestroy(graph));
    zero(0);
    for (int i = 0; i < 10; i++) MUST(cuGraphLaunch(exec, stream[0]));
    WANT(value_of(0) == 40.0f && value_of(3) == 38.0f);
    WANT(cuEventQuery(event[1]) == 907);
    MUST(cuGraphExecDestroy(exec));
    /* a stream that joined and is not waited for; a dependency on what was not captured; waiting
     * within a capture */
    MUST(cuStreamBeginCapture_v2(stream[0], CUDA_CAPTURE_RELAXED));
    MUST(cuEventRecord(event[0], stream[0]));
    MUST(cuStreamWaitEvent(stream[1], event[0], 0));
    adds(1, 2, 1);
    WANT(cuStreamEndCapture(stream[0], &graph) == 904);
    MUST(cuEventRecord(event[2], stream[1]));
    MUST(cuStreamBeginCapture_v2(stream[0], CUDA_CAPTURE_RELAXED));
    WANT(cuStreamWaitEvent(stream[0], event[2], 0) == 905);
    WANT(cuStreamEndCapture(stream[0], &graph) == 901);
    MUST(cuStreamBeginCapture_v2(stream[0], CUDA_CAPTURE_RELAXED));
    WANT(cuStreamSynchronize(stream[0]) == 900);
    WANT(cuStreamEndCapture(stream[0], &graph) == 901);
    WANT(chain(true) == 7.0f);
}

/* ── NCCL: this process and its children ─────────────────────────────────────── */
enum { RANKS = 3, COUNT = 200001 };
static void rank_runs(int rank, nccl_id id, const char *module, const char *mistake)
{
    nccl_comm comm;
    struct nccl_config config = NCCL_CONFIG;
    void *from, *to;
    unsigned error;
    const size_t bytes = COUNT * sizeof(float);
    float *host = malloc(RANKS * bytes);
    begin(module);
    MUST(ncclCommInitRankConfig(&comm, RANKS, id, rank, &config));
    MUST(ncclMemAlloc(&from, RANKS * bytes));
    MUST(ncclMemAlloc(&to, RANKS * bytes));
    for (int64_t i = 0; i < RANKS * COUNT; i++) host[i] = (float)(i % 1000 + 1000 * rank);
    MUST(cuMemcpyHtoDAsync_v2((uintptr_t)from, host, RANKS * bytes, stream[1]));
    size_t count = !strcmp(mistake, "sizes") && rank == 1 ? COUNT - 1 : COUNT;
    if (!strcmp(mistake, "order") && rank == 2)
        MUST(ncclAllReduce(from, to, count, NCCL_F32, NCCL_SUM, comm, stream[1]));
    if (strcmp(mistake, "absent") || rank)
        MUST(ncclAllGather(from, to, count, NCCL_F32, comm, stream[1]));
    for (;;) {
        MUST(ncclCommGetAsyncError(comm, &error));
        if (error) {
            MUST(ncclCommAbort(comm));
            _exit(9);
        }
        unsigned state = cuStreamQuery(stream[1]);
        if (state == CUDA_OK) break;
        WANT(state == CUDA_NOT_READY);
        usleep(1000);
    }
    MUST(cuMemcpyDtoHAsync_v2(host, (uintptr_t)to, RANKS * bytes, stream[1]));
    for (int64_t i = 0; i < RANKS * COUNT; i++)
        WANT(host[i] == (float)(i % COUNT % 1000 + 1000 * (i / COUNT)));
    MUST(ncclReduceScatter(from, to, COUNT, NCCL_F32, NCCL_SUM, comm, stream[1]));
    MUST(cuMemcpyDtoHAsync_v2(host, (uintptr_t)to, bytes, stream[1]));
    for (int64_t i = 0; i < COUNT; i++)
        WANT(host[i] == (float)(3 * ((rank * COUNT + i) % 1000) + 3000));
    MUST(ncclAllReduce(from, from, RANKS * COUNT, NCCL_F32, NCCL_SUM, comm, stream[1]));
    MUST(cuMemcpyDtoHAsync_v2(host, (uintptr_t)from, RANKS * bytes, stream[1]));
    for (int64_t i = 0; i < RANKS * COUNT; i++) WANT(host[i] == (float)(3 * (i % 1000) + 3000));
    MUST(ncclCommDestroy(comm));
    _exit(0);
}
/* Two communicators on two streams, issued in another order on the last rank: they end when both
 * fit on the device. */
static void rank_crosses(int rank, nccl_id *id, const char *module, int blocks)
{
    nccl_comm comm[2];
    struct nccl_config config = NCCL_CONFIG;
    void *at[2];
    unsigned error = 0;
    float one[COUNT];
    begin(module);
    config.max_ctas = blocks ? blocks : NCCL_UNSET;
    for (int i = 0; i < COUNT; i++) one[i] = 1.0f;
    for (int k = 0; k < 2; k++) {
        MUST(ncclCommInitRankConfig(&comm[k], RANKS, id[k], rank, &config));
        MUST(ncclMemAlloc(&at[k], sizeof one));
        MUST(cuMemcpyHtoDAsync_v2((uintptr_t)at[k], one, sizeof one, stream[k]));
    }
    for (int k = 0; k < 2; k++) {
        const int c = rank == RANKS - 1 ? 1 - k : k;
        if (k == 1) usleep(200000); /* the first is under way by now */
        MUST(ncclAllReduce(at[c], at[c], COUNT, NCCL_F32, NCCL_SUM, comm[c], stream[c]));
    }
    for (int k = 0; k < 2;) {
        MUST(ncclCommGetAsyncError(comm[0], &error));
        if (!error) MUST(ncclCommGetAsyncError(comm[1], &error));
        if (error) _exit(9);
        if (cuStreamQuery(stream[k]) == CUDA_OK) k++;
        usleep(1000);
    }
    for (int k = 0; k < 2; k++) {
        MUST(cuMemcpyDtoHAsync_v2(one, (uintptr_t)at[k], sizeof one, stream[k]));
        for (int i = 0; i < COUNT; i++) WANT(one[i] == (float)RANKS);
    }
    _exit(0);
}
static int worst_of(const pid_t *child)
{
    int status, worst = 0;
    for (int r = 0; r < RANKS; r++) {
        waitpid(child[r], &status, 0);
        int code = WIFEXITED(status) ? WEXITSTATUS(status) : 99;
        worst = code > worst ? code : worst;
    }
    if (worst) printf("rank ends with %d\n", worst);
    return worst;
}
static int crossing(const char *module, int blocks)
{
    nccl_id id[2];
    pid_t child[RANKS];
    for (int k = 0; k < 2; k++) MUST(ncclGetUniqueId(&id[k]));
    for (int r = 0; r < RANKS; r++)
        if ((child[r] = fork()) == 0) rank_crosses(r, id, module, blocks);
    return worst_of(child);
}
static int ranks(const char *module, const char *mistake)
{
    nccl_id id;
    pid_t child[RANKS];
    MUST(ncclGetUniqueId(&id));
    for (int r = 0; r < RANKS; r++)
        if ((child[r] = fork()) == 0) rank_runs(r, id, module, mistake);
    return worst_of(child);
}

/* ── cuBLASLt ────────────────────────────────────────────────────────────────── */
/* c[m,n] (by columns) = op(a) op(b), F32, all four ways */
static void products(void)
{
    enum { M = 13, P = 9, K = 21 };
    void *handle;
    float a[M * K], b[K * P], c[M * P], one = 1.0f, half = 0.5f;
    struct {
        uint64_t data[8];
        size_t workspace;
        unsigned status;
        float waves;
        int reserved[4];
    } found;
    int n;
    MUST(cublasLtCreate(&handle));
    for (int i = 0; i < M * K; i++) a[i] = (float)(i % 7 - 3);
    for (int i = 0; i < K * P; i++) b[i] = (float)(i % 5 - 2);
    MUST(cuMemcpyHtoDAsync_v2(memory[0], a, sizeof a, stream[0]));
    MUST(cuMemcpyHtoDAsync_v2(memory[1], b, sizeof b, stream[0]));
    for (int way = 0; way < 4; way++) {
        const int32_t ta = way & 1, tb = way >> 1;
        const uint64_t none = 0;
        void *o, *la, *lb, *lc, *wish;
        MUST(cublasLtMatmulDescCreate(&o, 68, 0));
        MUST(cublasLtMatmulDescSetAttribute(o, 3, &ta, 4));
        MUST(cublasLtMatmulDescSetAttribute(o, 4, &tb, 4));
        MUST(cublasLtMatrixLayoutCreate(&la, 0, ta ? K : M, ta ? M : K, ta ? K : M));
        MUST(cublasLtMatrixLayoutCreate(&lb, 0, tb ? P : K, tb ? K : P, tb ? P : K));
        MUST(cublasLtMatrixLayoutCreate(&lc, 0, M, P, M));
        MUST(cublasLtMatmulPreferenceCreate(&wish));
        MUST(cublasLtMatmulPreferenceSetAttribute(wish, 1, &none, 8));
        MUST(cublasLtMatmulAlgoGetHeuristic(handle, o, la, lb, lc, lc, wish, 1, &found, &n));
        WANT(n == 1 && found.workspace == 0);
        zero(2);
        const float zeroed = 0.0f;
        MUST(cublasLtMatmul(handle, o, &one, (void *)memory[0], la, (void *)memory[1], lb, &zeroed,
                            (void *)memory[2], lc, (void *)memory[2], lc, found.data, NULL, 0,
                            stream[0]));
        MUST(cublasLtMatmul(handle, o, &half, (void *)memory[0], la, (void *)memory[1], lb, &one,
                            (void *)memory[2], lc, (void *)memory[2], lc, found.data, NULL, 0,
                            stream[0]));
        MUST(cuMemcpyDtoHAsync_v2(c, memory[2], sizeof c, stream[0]));
        for (int i = 0; i < M; i++)
            for (int j = 0; j < P; j++) {
                float sum = 0.0f;
                for (int k = 0; k < K; k++)
                    sum += (ta ? a[i * K + k] : a[k * M + i]) * (tb ? b[k * P + j] : b[j * K + k]);
                WANT(c[j * M + i] == 1.5f * sum);
            }
    }
}

static void one_argument(cuda_function f, cuda_address at)
{
    void *argument[] = {&at};
    MUST(cuLaunchKernel(f, 1, 1, 1, 32, 1, 1, 0, stream[0], argument, NULL));
    printf("cuStreamSynchronize gives %u\n", cuStreamSynchronize(stream[0]));
}
int main(int argc, char **argv)
{
    const char *which = argc > 2 ? argv[2] : "";
    /* at most 66 thread blocks of each fit beside each other, 67 do not */
    if (!strncmp(which, "crossing.", 9)) return crossing(argv[1], atoi(which + 9));
    if (!strncmp(which, "ranks", 5)) return ranks(argv[1], which[5] ? which + 6 : "");
    begin(argv[1]);
    if (!strcmp(which, "streams"))
        streams();
    else if (!strcmp(which, "graphs"))
        graphs();
    else if (!strcmp(which, "products"))
        products();
    else if (!strcmp(which, "no_wait")) {
        for (int i = 0; i < 30; i++)
            if (chain(false) != 7.0f) return printf("wrong without the wait\n"), 1;
    } else if (!strcmp(which, "deadlock"))
        one_argument(deadlock, memory[0]);
    else if (!strcmp(which, "strays"))
        one_argument(strays, memory[0]);
    else if (!strcmp(which, "host_address")) {
        float mine[32];
        one_argument(deadlock, (uintptr_t)mine);
    } else if (!strcmp(which, "follows"))
        printf("%g\n", (double)*(float *)(uintptr_t)memory[0]);
    else if (!strcmp(which, "too_much_shared")) {
        void *argument[] = {&memory[0]};
        printf("cuLaunchKernel gives %u",
               cuLaunchKernel(deadlock, 1, 1, 1, 32, 1, 1, 50000, stream[0], argument, NULL));
        printf(" and %u\n",
               cuLaunchKernel(deadlock, 1, 1, 1, 64, 1, 1, 0, stream[0], argument, NULL));
    } else
        return 2;
    return 0;
}
