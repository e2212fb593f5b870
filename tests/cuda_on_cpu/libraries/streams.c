/* Streams, events and graphs of the stand-in driver. One thread, the taker, plays the device: again
 * and again it looks at the heads of all queues and at the ready nodes of running graphs, leaves
 * out those whose waits are not satisfied, and takes one. Which one is drawn so as to do harm:
 *   STANDIN_ORDER = random   any of them
 *                   first    the stream that was made first, as long as it can go on: later streams
 *                   starve last     the stream that was made last: earlier ones starve
 *   STANDIN_LAZY = 1         nothing is done before the host waits for something, or 5 ms have
 *   passed
 * so that a wait that a program forgot shows as a wrong result in one of them. STANDIN_SEED draws
 * another course. */
#define _GNU_SOURCE
#include "streams.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { MOST_STREAMS = 64, MOST_FRONTIER = 64, USE_NODE_PRIORITY = 8 };
enum op_kind { OP_WORK, OP_RECORD, OP_WAIT, OP_GRAPH };
typedef enum standin_progress (*work_function)(void *);

struct CUevent_st {
    uint64_t recorded, happened;
    double seconds;
    struct CUgraph_st *captured;
    int frontier[MOST_FRONTIER], frontiers;
};
struct node {
    const char *what;
    work_function run;
    void *data;
    size_t bytes;
    int *needs, need_count;
};
struct CUgraph_st {
    struct node *node;
    int nodes;
    stream_t origin;
    bool broken;
};
struct CUgraphExec_st {
    struct CUgraph_st graph;
};
struct running {
    void *data;
    int missing;
    bool done;
}; /* a node of a launched graph */
struct op {
    enum op_kind kind;
    const char *what;
    work_function run;
    void *data;
    struct CUevent_st *event;
    uint64_t number;
    struct CUgraphExec_st *exec;
    struct running *running;
    int left;
    struct op *next;
};
struct CUstream_st {
    struct op *head, **tail;
    uint64_t issued, completed;
    struct CUgraph_st *capturing;
    int frontier[MOST_FRONTIER], frontiers; /* nodes that the next one comes after */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static struct CUstream_st legacy, *streams[MOST_STREAMS] = {&legacy};
static int stream_count = 1, hosts_waiting;
static bool taking;
static unsigned error_code;
static char error_text[600];
static double oldest;

int64_t standin_setting(const char *name, int64_t otherwise)
{
    const char *text = getenv(name);
    return text && *text ? strtoll(text, NULL, 10) : otherwise;
}
uint64_t standin_random(void)
{
    static uint64_t state;
    if (!state) state = (uint64_t)standin_setting("STANDIN_SEED", 1) * 0x9e3779b97f4a7c15u + 77;
    state = state * 6364136223846793005u + 1442695040888963407u;
    return state >> 33;
}
static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}
void standin_error(unsigned code, const char *format, ...)
{
    static int said;
    va_list list;
    va_start(list, format);
    if (!__sync_fetch_and_add(&said, 1)) {
        vsnprintf(error_text, sizeof error_text, format, list);
        fprintf(stderr, "stand-in driver: %s\n", error_text);
        error_code = code;
    }
    va_end(list);
}
unsigned standin_error_code(void) { return error_code; }
static void *room(size_t bytes)
{
    void *p = calloc(1, bytes ? bytes : 1);
    if (!p) abort();
    return p;
}

/* ── the taker ───────────────────────────────────────────────────────────────── */
struct choice {
    stream_t stream;
    int node;
}; /* node -1: the head itself */

static int choices(struct choice *to, int most)
{
    int n = 0;
    for (int s = 0; s < stream_count; s++) {
        struct op *op = streams[s] ? streams[s]->head : NULL;
        if (!op || (op->kind == OP_WAIT && op->event->happened < op->number)) continue;
        if (op->kind != OP_GRAPH || op->left == 0) {
            if (n < most) to[n++] = (struct choice){streams[s], -1};
            continue;
        }
        for (int i = 0; i < op->exec->graph.nodes; i++)
            if (!op->running[i].done && op->running[i].missing == 0 && n < most)
                to[n++] = (struct choice){streams[s], i};
    }
    return n;
}

static enum standin_progress take(struct choice c)
{
    struct op *op = c.stream->head;
    work_function run = c.node >= 0 ? op->exec->graph.node[c.node].run : op->run;
    void *data = c.node >= 0 ? op->running[c.node].data : op->data;
    enum standin_progress progress = STANDIN_DONE;
    if (run && !error_code) {
        pthread_mutex_unlock(&lock);
        progress = run(data);
        pthread_mutex_lock(&lock);
    }
    if (progress == STANDIN_AGAIN) return progress;
    if (c.node >= 0) {
        const struct CUgraph_st *g = &op->exec->graph;
        op->running[c.node].done = true;
        op->left--;
        for (int i = 0; i < g->nodes; i++)
            for (int k = 0; k < g->node[i].need_count; k++)
                op->running[i].missing -= g->node[i].needs[k] == c.node;
        if (op->left) return progress;
    }
    if (op->kind == OP_RECORD) {
        op->event->happened = op->number;
        op->event->seconds = now();
    }
    for (int i = 0; op->kind == OP_GRAPH && i < op->exec->graph.nodes; i++)
        free(op->running[i].data);
    free(op->running);
    free(op->data);
    c.stream->head = op->next;
    if (!op->next) c.stream->tail = &c.stream->head;
    free(op);
    c.stream->completed++;
    pthread_cond_broadcast(&changed);
    return progress;
}

static void *take_for_ever(void *nothing)
{
    const char *order = getenv("STANDIN_ORDER") ? getenv("STANDIN_ORDER") : "random";
    const bool first = strcmp(order, "first") == 0, last = strcmp(order, "last") == 0,
               lazy = standin_setting("STANDIN_LAZY", 0) != 0;
    int again = 0;
    (void)nothing;
    pthread_mutex_lock(&lock);
    for (;;) {
        static struct choice choice[4096];
        int n = choices(choice, 4096);
        if (n == 0) {
            again = 0;
            pthread_cond_wait(&changed, &lock);
            continue;
        }
        if (lazy && !hosts_waiting && now() - oldest < 5e-3) {
            pthread_mutex_unlock(&lock);
            usleep(1000);
            pthread_mutex_lock(&lock);
            continue;
        }
        int which = first  ? again % n
                    : last ? n - 1 - again % n
                           : (int)(standin_random() % (uint64_t)n);
        again = take(choice[which]) == STANDIN_AGAIN ? again + 1 : 0;
        if (again >= n) { /* all that could go on wait for another process */
            pthread_mutex_unlock(&lock);
            usleep(again > 4 * n ? 500 : 50);
            pthread_mutex_lock(&lock);
        }
    }
    return NULL;
}

/* With the lock. */
static void append(stream_t s, struct op *op)
{
    if (!s->tail) s->tail = &s->head;
    *s->tail = op;
    s->tail = &op->next;
    s->issued++;
    oldest = now();
    if (!taking) {
        pthread_t taker;
        if (pthread_create(&taker, NULL, take_for_ever, NULL) || pthread_detach(taker)) abort();
        taking = true;
    }
    pthread_cond_broadcast(&changed);
}
static unsigned wait_for(stream_t s, uint64_t number)
{
    hosts_waiting++;
    pthread_cond_broadcast(&changed);
    while (s->completed < number) pthread_cond_wait(&changed, &lock);
    hosts_waiting--;
    return error_code;
}
unsigned streams_drain(void)
{
    pthread_mutex_lock(&lock);
    for (int s = 0; s < stream_count; s++)
        if (streams[s]) wait_for(streams[s], streams[s]->issued);
    pthread_mutex_unlock(&lock);
    return error_code;
}

static stream_t real(stream_t s) { return s ? s : &legacy; }
static void merge(int *into, int *n, const int *from, int m)
{
    for (int i = 0; i < m; i++) {
        bool there = false;
        for (int k = 0; k < *n; k++) there = there || into[k] == from[i];
        if (there) continue;
        if (*n == MOST_FRONTIER) abort();
        into[(*n)++] = from[i];
    }
}

unsigned standin_enqueue(stream_t stream, const char *what, work_function run, const void *data,
                         size_t bytes)
{
    stream_t s = real(stream);
    void *copy = room(bytes);
    memcpy(copy, data, bytes);
    pthread_mutex_lock(&lock);
    if (s->capturing) {
        struct CUgraph_st *g = s->capturing;
        g->node = realloc(g->node, sizeof *g->node * (size_t)(g->nodes + 1));
        if (!g->node) abort();
        int *needs = room(sizeof *needs * (size_t)s->frontiers);
        memcpy(needs, s->frontier, sizeof *needs * (size_t)s->frontiers);
        g->node[g->nodes] = (struct node){what, run, copy, bytes, needs, s->frontiers};
        s->frontier[0] = g->nodes++;
        s->frontiers = 1;
    } else {
        struct op *op = room(sizeof *op);
        *op = (struct op){.kind = OP_WORK, .what = what, .run = run, .data = copy};
        append(s, op);
    }
    pthread_mutex_unlock(&lock);
    return error_code;
}

/* ── streams and events ──────────────────────────────────────────────────────── */
EXPORTED unsigned cuStreamCreateWithPriority(stream_t *stream, unsigned flags, int priority)
{
    (void)flags, (void)priority;
    pthread_mutex_lock(&lock);
    unsigned result = stream_count < MOST_STREAMS ? OK : OUT_OF_MEMORY;
    if (!result) *stream = streams[stream_count++] = room(sizeof **stream);
    pthread_mutex_unlock(&lock);
    return result ? result : error_code;
}
EXPORTED unsigned cuStreamCreate(stream_t *stream, unsigned flags)
{
    return cuStreamCreateWithPriority(stream, flags, 0);
}
EXPORTED unsigned cuStreamDestroy_v2(stream_t stream)
{
    pthread_mutex_lock(&lock);
    wait_for(stream, stream->issued);
    for (int s = 0; s < stream_count; s++)
        if (streams[s] == stream) streams[s] = NULL;
    pthread_mutex_unlock(&lock);
    return error_code;
}
EXPORTED unsigned cuStreamQuery(stream_t stream)
{
    pthread_mutex_lock(&lock);
    stream_t s = real(stream);
    unsigned result = s->capturing               ? CAPTURE_UNSUPPORTED
                      : s->completed < s->issued ? NOT_READY
                                                 : OK;
    if (s->capturing) s->capturing->broken = true;
    oldest = 0;
    pthread_mutex_unlock(&lock);
    return error_code ? error_code : result;
}
EXPORTED unsigned cuStreamSynchronize(stream_t stream)
{
    pthread_mutex_lock(&lock);
    stream_t s = real(stream);
    unsigned result = CAPTURE_UNSUPPORTED;
    if (s->capturing)
        s->capturing->broken = true;
    else
        result = wait_for(s, s->issued);
    pthread_mutex_unlock(&lock);
    return result;
}
EXPORTED unsigned cuCtxSynchronize(void) { return streams_drain(); }

EXPORTED unsigned cuEventCreate(struct CUevent_st **event, unsigned flags)
{
    (void)flags;
    *event = room(sizeof **event);
    return error_code;
}
EXPORTED unsigned cuEventDestroy_v2(struct CUevent_st *event)
{
    streams_drain();
    free(event);
    return error_code;
}
EXPORTED unsigned cuEventRecord(struct CUevent_st *event, stream_t stream)
{
    pthread_mutex_lock(&lock);
    stream_t s = real(stream);
    event->captured = s->capturing;
    if (s->capturing) {
        memcpy(event->frontier, s->frontier, sizeof s->frontier);
        event->frontiers = s->frontiers;
    } else {
        struct op *op = room(sizeof *op);
        *op = (struct op){
            .kind = OP_RECORD, .what = "record", .event = event, .number = ++event->recorded};
        append(s, op);
    }
    pthread_mutex_unlock(&lock);
    return error_code;
}
EXPORTED unsigned cuStreamWaitEvent(stream_t stream, struct CUevent_st *event, unsigned flags)
{
    (void)flags;
    unsigned result = OK;
    pthread_mutex_lock(&lock);
    stream_t s = real(stream);
    if (event->captured && (!s->capturing || s->capturing == event->captured)) {
        bool alive = event->captured->origin != NULL; /* its capture goes on */
        if (!alive) {
            result = CAPTURED_EVENT;
        } else {
            if (!s->capturing) s->capturing = event->captured, s->frontiers = 0; /* joins */
            merge(s->frontier, &s->frontiers, event->frontier, event->frontiers);
        }
    } else if (s->capturing) {
        s->capturing->broken = true;
        result = CAPTURE_ISOLATION;
    } else if (event->recorded > event->happened) {
        struct op *op = room(sizeof *op);
        *op =
            (struct op){.kind = OP_WAIT, .what = "wait", .event = event, .number = event->recorded};
        append(s, op);
    }
    pthread_mutex_unlock(&lock);
    return result ? result : error_code;
}
EXPORTED unsigned cuEventQuery(struct CUevent_st *event)
{
    pthread_mutex_lock(&lock);
    unsigned result = event->captured                     ? CAPTURED_EVENT
                      : event->happened < event->recorded ? NOT_READY
                                                          : OK;
    oldest = 0;
    pthread_mutex_unlock(&lock);
    return error_code ? error_code : result;
}
EXPORTED unsigned cuEventSynchronize(struct CUevent_st *event)
{
    pthread_mutex_lock(&lock);
    unsigned result = event->captured ? CAPTURED_EVENT : OK;
    hosts_waiting++;
    pthread_cond_broadcast(&changed);
    for (uint64_t number = event->recorded; !result && event->happened < number;)
        pthread_cond_wait(&changed, &lock);
    hosts_waiting--;
    pthread_mutex_unlock(&lock);
    return result ? result : error_code;
}
EXPORTED unsigned cuEventElapsedTime(float *milliseconds, struct CUevent_st *from,
                                     struct CUevent_st *to)
{
    pthread_mutex_lock(&lock);
    bool known = from->recorded && to->recorded && from->happened == from->recorded &&
                 to->happened == to->recorded;
    *milliseconds = known ? (float)(1e3 * (to->seconds - from->seconds)) : 0.0f;
    unsigned result = !from->recorded || !to->recorded ? INVALID_HANDLE : known ? OK : NOT_READY;
    pthread_mutex_unlock(&lock);
    return error_code ? error_code : result;
}
EXPORTED unsigned cuEventElapsedTime_v2(float *milliseconds, struct CUevent_st *from,
                                        struct CUevent_st *to)
{
    return cuEventElapsedTime(milliseconds, from, to);
}

/* ── graphs ──────────────────────────────────────────────────────────────────── */
EXPORTED unsigned cuStreamBeginCapture_v2(stream_t stream, unsigned mode)
{
    (void)mode;
    if (!stream) return CAPTURE_UNSUPPORTED;
    pthread_mutex_lock(&lock);
    unsigned result = stream->capturing ? INVALID_VALUE : OK;
    if (!result) {
        stream->capturing = room(sizeof *stream->capturing);
        stream->capturing->origin = stream;
        stream->frontiers = 0;
    }
    pthread_mutex_unlock(&lock);
    return result ? result : error_code;
}
EXPORTED unsigned cuStreamIsCapturing(stream_t stream, unsigned *status)
{
    stream_t s = real(stream);
    pthread_mutex_lock(&lock);
    *status = !s->capturing ? 0 : s->capturing->broken ? 2 : 1;
    pthread_mutex_unlock(&lock);
    return error_code;
}
/* Whether the last node of every stream that joined comes before what the origin would do next. */
static bool joined(const struct CUgraph_st *g)
{
    bool *before = room((size_t)g->nodes + 1), all = true;
    for (int i = 0; i < g->origin->frontiers; i++) before[g->origin->frontier[i]] = true;
    for (int i = g->nodes - 1; i >= 0; i--)
        for (int k = 0; before[i] && k < g->node[i].need_count; k++)
            before[g->node[i].needs[k]] = true;
    for (int i = 0; i < g->nodes; i++) all = all && before[i];
    free(before);
    return all;
}
EXPORTED unsigned cuStreamEndCapture(stream_t stream, struct CUgraph_st **graph)
{
    pthread_mutex_lock(&lock);
    struct CUgraph_st *g = stream->capturing;
    unsigned result = !g || g->origin != stream ? INVALID_VALUE
                      : g->broken               ? CAPTURE_INVALIDATED
                      : joined(g)               ? OK
                                                : CAPTURE_UNJOINED;
    for (int s = 0; g && s < stream_count; s++)
        if (streams[s] && streams[s]->capturing == g) streams[s]->capturing = NULL;
    if (g) g->origin = NULL;
    *graph = result ? NULL : g;
    pthread_mutex_unlock(&lock);
    return result ? result : error_code;
}
static int graphs;
EXPORTED int standin_graphs(void) { return graphs; }

EXPORTED unsigned cuGraphInstantiateWithFlags(struct CUgraphExec_st **exec,
                                              struct CUgraph_st *graph, unsigned long long flags)
{
    /* 0 would run the transfers at the priority of the stream of compute */
    if (flags != USE_NODE_PRIORITY) return INVALID_VALUE;
    graphs++;
    *exec = room(sizeof **exec);
    (*exec)->graph = *graph;
    (*exec)->graph.node = room(sizeof *graph->node * (size_t)graph->nodes);
    for (int i = 0; i < graph->nodes; i++) {
        struct node *n = &(*exec)->graph.node[i];
        *n = graph->node[i];
        n->data = memcpy(room(n->bytes), n->data, n->bytes);
        n->needs = memcpy(room(sizeof *n->needs * (size_t)n->need_count), n->needs,
                          sizeof *n->needs * (size_t)n->need_count);
    }
    return error_code;
}
EXPORTED unsigned cuGraphUpload(struct CUgraphExec_st *exec, stream_t stream)
{
    return (void)exec, (void)stream, error_code;
}
EXPORTED unsigned cuGraphGetNodes(struct CUgraph_st *graph, void **nodes, size_t *count)
{
    if (nodes) return INVALID_VALUE; /* only how many */
    *count = (size_t)graph->nodes;
    return error_code;
}
EXPORTED unsigned cuGraphLaunch(struct CUgraphExec_st *exec, stream_t stream)
{
    stream_t s = real(stream);
    const struct CUgraph_st *g = &exec->graph;
    struct op *op = room(sizeof *op);
    *op = (struct op){.kind = OP_GRAPH,
                      .what = "graph",
                      .exec = exec,
                      .running = room(sizeof *op->running * (size_t)g->nodes),
                      .left = g->nodes};
    for (int i = 0; i < g->nodes; i++)
        op->running[i] = (struct running){
            .data = memcpy(room(g->node[i].bytes), g->node[i].data, g->node[i].bytes),
            .missing = g->node[i].need_count};
    pthread_mutex_lock(&lock);
    unsigned result = s->capturing ? CAPTURE_UNSUPPORTED : OK;
    if (!result) append(s, op);
    pthread_mutex_unlock(&lock);
    return result ? result : error_code;
}
static void graph_free(struct CUgraph_st *g)
{
    for (int i = 0; i < g->nodes; i++) {
        free(g->node[i].data);
        free(g->node[i].needs);
    }
    free(g->node);
}
EXPORTED unsigned cuGraphExecDestroy(struct CUgraphExec_st *exec)
{
    streams_drain();
    graph_free(&exec->graph);
    free(exec);
    graphs--;
    return error_code;
}
EXPORTED unsigned cuGraphDestroy(struct CUgraph_st *graph)
{
    graph_free(graph); /* the struct stays: events may still name it */
    graph->nodes = 0, graph->node = NULL;
    return error_code;
}
