/* --trace FILE: what ran when, in the form that Perfetto and Chrome's tracing page read: one
 * process per rank, one thread per lane, one event per kernel or transfer, microseconds since the
 * first traced step began. Every rank makes its own text while it runs; rank 0 gathers them at the
 * end into one file. */
#define _GNU_SOURCE
#include "output.h"
#include "watch.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct {
    const char *path;
    FILE *file; /* rank 0 */
    char *text;
    size_t length, room;
    double origin;
} trace;

bool trace_open(const char *path)
{
    trace.path = path;
    if (world.rank != 0) return true;
    int fd = output_open("--trace", path, O_TRUNC);
    if (fd < 0) return false;
    trace.file = fdopen(fd, "w");
    return trace.file || fail_note("--trace %s: %s", path, strerror(errno));
}

static void add(const char *format, ...) PRINTF_LIKE(1, 2);
static void add(const char *format, ...)
{
    va_list args;
    for (;;) {
        va_start(args, format);
        int n = vsnprintf(trace.text + trace.length, trace.room - trace.length, format, args);
        va_end(args);
        if (n >= 0 && (size_t)n < trace.room - trace.length) {
            trace.length += (size_t)n;
            return;
        }
        trace.room = trace.room ? 2 * trace.room : 1 << 20;
        trace.text = realloc(trace.text, trace.room);
        if (!trace.text)
            fail_now("rank %d: --trace: no memory for %zu bytes", world.rank, trace.room);
    }
}

/* The first mark of any rank of this host, or of this rank where hosts have clocks of their own.
 * Collective. */
static double first_of_all(const struct mark *mark, int64_t marks)
{
    double mine = marks ? mark[0].from : clock_seconds(), first = mine,
           *all = ROOM(double, world.size);
    world_exchange(&mine, 1, all);
    for (int r = 0; r < world.size && world.one_host; r++) first = all[r] < first ? all[r] : first;
    return first;
}

/* "layers[3]" of a unit's instance. */
static void unit_text(int64_t instance, char *to, size_t bytes)
{
    for (int u = 0; u < program.units; instance -= program.unit[u].count, u++)
        if (instance < program.unit[u].count) {
            snprintf(to, bytes, program.unit[u].count > 1 ? " %s[%lld]" : " %s",
                     program.unit[u].name, (long long)instance);
            return;
        }
    to[0] = 0;
}

void trace_step(const struct mark *mark, int64_t marks, int64_t step)
{
    static const char *const lane[WATCH_LANES] = {"compute", "gather", "reduce", "replicas"};
    const int lanes = program.dp > 1 ? WATCH_LANES : WATCH_REPLICAS; /* one replica has none */
    for (int i = 0; i < lanes && trace.origin == 0; i++)
        add("{\"name\":\"thread_name\",\"ph\":\"M\",\"pid\":%d,\"tid\":%d,\"args\":{\"name\":\"%"
            "s\"}},\n",
            world.rank, i, lane[i]);
    if (trace.origin == 0) trace.origin = first_of_all(mark, marks);
    for (int64_t i = 0; i < marks; i++) {
        const struct mark *m = &mark[i];
        char unit[128] = "";
        if (m->unit >= 0) unit_text(m->unit, unit, sizeof unit);
        add("{\"name\":\"%s%s\",\"ph\":\"X\",\"pid\":%d,\"tid\":%d,\"ts\":%.3f,\"dur\":%.3f,"
            "\"args\":{\"step\":%lld}},\n",
            m->kernel ? m->kernel->name : m->what, unit, world.rank, (int)m->lane,
            1e6 * (m->from - trace.origin), 1e6 * (m->to - m->from), (long long)step);
    }
}

bool trace_close(void)
{
    double mine = (double)trace.length, *length = ROOM(double, world.size);
    world_exchange(&mine, 1, length);
    if (world.rank != 0) {
        world_send(trace.text, (int64_t)trace.length, 0);
        return true;
    }
    fprintf(trace.file, "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n");
    for (int r = 0; r < world.size; r++) {
        char *text = r == 0 ? trace.text : room((int64_t)length[r]);
        if (r > 0) world_receive(text, (int64_t)length[r], r);
        fwrite(text, 1, (size_t)length[r], trace.file);
    }
    for (int r = 0; r < world.size; r++)
        fprintf(trace.file,
                "{\"name\":\"process_name\",\"ph\":\"M\",\"pid\":%d,\"args\":{\"name\":\"rank "
                "%d\"}}%s\n",
                r, r, r + 1 < world.size ? "," : "]}");
    bool fine = !ferror(trace.file);
    fine = fclose(trace.file) == 0 && fine;
    if (!fine) return fail_note("--trace %s: %s", trace.path, output_why(errno));
    say("trace: written to %s", trace.path);
    return true;
}
