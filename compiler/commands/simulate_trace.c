/* Chrome's trace format, as runtime/shared/timeline.c writes it: one process per rank, one thread a
 * lane, one event per kernel or transfer, microseconds since the step began. A predicted and a
 * measured trace open side by side. */
#include "commands/simulate_trace.h"

#include <stdio.h>

struct writing {
    struct text *to;
    const struct program *program;
};

static void write_one(struct watcher *w, const struct item *item, int kernel, int64_t layer,
                      int64_t from, int64_t to)
{
    struct writing *out = w->context;
    const char *name = kernel >= 0 ? out->program->kernel[kernel].name : item->what;
    int lane = kernel >= 0                                               ? 0
               : item->kind == ITEM_GATHER                               ? 1
               : item->kind == ITEM_REPLICAS || item->kind == ITEM_PARTS ? 3
                                                                         : 2;
    char unit[32] = "";
    if (kernel < 0 && layer >= 0) snprintf(unit, sizeof unit, "[%lld]", (long long)layer);
    text_add(out->to,
             "{\"name\":\"%s%s\",\"ph\":\"X\",\"pid\":0,\"tid\":%d,\"ts\":%.6f,\"dur\":%.6f,"
             "\"args\":{\"step\":1}},\n",
             name, unit, lane, (double)from * 1e-6, (double)(to - from) * 1e-6);
}

bool simulate_trace(struct program *p, const char *path)
{
    static const char *const lane[] = {"compute", "gather", "reduce", "replicas"};
    struct text text = {0};
    struct writing out = {&text, p};
    struct watcher w = {write_one, &out};
    text_add(&text, "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n");
    for (int i = 0; i < 4; i++)
        text_add(&text,
                 "{\"name\":\"thread_name\",\"ph\":\"M\",\"pid\":0,\"tid\":%d,\"args\":{\"name\":"
                 "\"%s\"}},\n",
                 i, lane[i]);
    engine_run(engine_new(p), true, &w);
    text_add(&text,
             "{\"name\":\"process_name\",\"ph\":\"M\",\"pid\":0,\"args\":{\"name\":\"rank 0, "
             "predicted\"}}]}\n");
    return file_write(path, text.bytes, text.length);
}
