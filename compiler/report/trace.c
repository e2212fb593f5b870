/* The lanes of a step that was run: what a trainer's --trace wrote, drawn as the predicted step is.
 * Rank 0 and the last traced step are shown. Names of kernels say which part of the step they are
 * in, so the trace has to be one of this plan. */
#include "report/lanes.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Compute waited where it did nothing for longer than this part of the step, and a collective ran
 * meanwhile. */
static const double WAIT_PART = 2e-4;

struct event {
    const char *name;
    int64_t lane, from, to; /* picoseconds */
};
typedef VECTOR(struct event) event_list;

static int by_begin(const void *a, const void *b)
{
    const struct event *x = a, *y = b;
    if (x->from != y->from) return x->from < y->from ? -1 : 1;
    return x->to < y->to ? -1 : x->to > y->to;
}

/* Of rank 0's last step; times from its first event on. */
static const char *events_of(const char *path, event_list *all, int64_t *step)
{
    size_t bytes, i;
    json_error_t error;
    const char *text = file_read(path, &bytes);
    if (!text) return file_read_why(errno);
    const json_t *file = json_loadb(text, bytes, 0, &error), *event;
    const json_t *events = json_object_get(file, "traceEvents");
    if (!file) return text_format("line %d: %s", error.line, error.text);
    if (!json_is_array(events)) return "it has no traceEvents: it is no trace";
    *step = -1;
    for (int pass = 0; pass < 2; pass++) json_array_foreach(events, i, event)
        {
            const char *kind = json_string_value(json_object_get(event, "ph")),
                       *name = json_string_value(json_object_get(event, "name"));
            const json_t *of = json_object_get(json_object_get(event, "args"), "step");
            if (!kind || strcmp(kind, "X") || !name || !json_is_integer(of)) continue;
            if (json_integer_value(json_object_get(event, "pid"))) continue;
            if (!pass && json_integer_value(of) > *step) *step = json_integer_value(of);
            if (!pass || json_integer_value(of) != *step) continue;
            double from = json_number_value(json_object_get(event, "ts")),
                   took = json_number_value(json_object_get(event, "dur"));
            struct event e = {intern(name),
                              LANE_COMPUTE + json_integer_value(json_object_get(event, "tid")),
                              (int64_t)(1e6 * from), (int64_t)(1e6 * (from + took))};
            if (e.lane >= LANE_COMPUTE && e.lane < LANES && took >= 0) PUSH(all, e);
        }
    if (!all->n) return "it has no step of rank 0";
    qsort(all->item, (size_t)all->n, sizeof *all->item, by_begin);
    for (int k = all->n - 1; k >= 0; k--)
        all->item[k].from -= all->item[0].from, all->item[k].to -= all->item[0].from;
    return NULL;
}

/* The region that a kernel is in; NULL: in none of this plan. */
static const struct part_region *region_of(const struct program *p, const char *kernel)
{
    for (int i = 0; i < p->items; i++) {
        const struct item *it = p->by_number[i];
        for (int k = 0; it->kind == ITEM_RUN && k < it->kernels; k++)
            if (!strcmp(p->kernel[it->kernel + k].name, kernel)) return &p->region[p->region_of[i]];
    }
    return NULL;
}

/* Whether a transfer ran between two times. */
static bool transfers(const event_list *all, int64_t from, int64_t to)
{
    for (int i = 0; i < all->n && all->item[i].from < to; i++)
        if (all->item[i].lane != LANE_COMPUTE && all->item[i].to > from) return true;
    return false;
}

const char *section_trace(struct text *t, const struct rung *r, const char *path, json_t *out)
{
    event_list all = {0};
    int64_t step = -1, end = 0, busy[LANES] = {0}, waited = 0;
    const char *why = events_of(path, &all, &step);
    if (why) return why;
    for (int i = 0; i < all.n; i++)
        if (all.item[i].to > end) end = all.item[i].to;
    struct recording rec = recording_begin();
    for (int i = 0; i < all.n; i++) {
        const struct event *e = &all.item[i];
        busy[e->lane] += e->to - e->from;
        if (e->lane != LANE_COMPUTE) {
            recording_transfer(&rec, (enum lane)e->lane, e->name, -1, e->from, e->to);
            continue;
        }
        const struct part_region *region = region_of(r->program, e->name);
        if (!region)
            return text_format("kernel '%s' is none of this plan's: the trace is another plan's",
                               e->name);
        bool waits = (double)(e->from - rec.end) > WAIT_PART * (double)end &&
                     transfers(&all, rec.end, e->from);
        if (waits) waited += e->from - rec.end;
        recording_compute(&rec, region, -1, waits ? e->from : 0, e->from, e->to);
    }
    text_add(t,
             "<section>\n<h2>A measured step, lane by lane</h2>\n<p class=\"soft\">%s: rank 0, "
             "step %lld, %s.",
             html_text(path), (long long)step, html_seconds((double)end * 1e-12));
    text_add(t, " Predicted: %s (%+.1f %%).", html_seconds(r->step_seconds),
             100 * (r->step_seconds / ((double)end * 1e-12) - 1));
    if (rec.micro_batches > 1)
        text_add(t, " The last of %d micro-batches and the update are drawn.", rec.micro_batches);
    text_add(t, " Compute waits %s for collectives, %.1f %% of the step.</p>\n",
             html_seconds((double)waited * 1e-12), 100 * (double)waited / (double)end);
    lanes_chart(t, &rec, end, "Compute, gather and reduce over a measured step");
    text_add(t, "</section>\n");
    if (out)
        json_object_set_new(out, "trace",
                            json_pack("{s:I, s:f, s:f, s:f, s:f, s:f, s:f, s:f}", "step",
                                      (json_int_t)step, "step_seconds", (double)end * 1e-12,
                                      "predicted_step_seconds", r->step_seconds, "compute_seconds",
                                      (double)busy[LANE_COMPUTE] * 1e-12, "gather_seconds",
                                      (double)busy[LANE_GATHER] * 1e-12, "reduce_seconds",
                                      (double)busy[LANE_REDUCE] * 1e-12, "replicas_seconds",
                                      (double)busy[LANE_REPLICAS] * 1e-12, "exposed_comm_seconds",
                                      (double)waited * 1e-12));
    return NULL;
}
