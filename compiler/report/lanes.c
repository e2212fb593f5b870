/* The lanes of a step: the same run of the schedule that the prediction comes from, watched. A step
 * of many micro-batches repeats itself, so the last one and the update are shown. */
#include "report/lanes.h"

/* ── recording ───────────────────────────────────────────────────────────────── */

static void add_block(block_list *all, struct block b)
{
    struct block *last = all->n ? &all->item[all->n - 1] : NULL;
    if (last && last->name == b.name && last->layer == b.layer && last->waited == b.waited &&
        !b.waited && b.kernels)
        last->to = b.to, last->kernels++;
    else
        PUSH(all, b);
}

struct recording recording_begin(void) { return (struct recording){.part = STEP_UPDATE}; }

void recording_compute(struct recording *r, const struct part_region *region, int64_t layer,
                       int64_t ready, int64_t from, int64_t to)
{
    block_list *lane = &r->lane[LANE_COMPUTE];
    bool next = region->part == STEP_FORWARD && r->part != STEP_FORWARD;
    if (next) r->micro_batches++, r->begin = r->end;
    if (ready > r->end)
        add_block(lane, (struct block){.name = "waits for a collective",
                                       .layer = -1,
                                       .from = r->end,
                                       .to = ready,
                                       .waited = true});
    add_block(lane, (struct block){.name = region->name,
                                   .part = region->part,
                                   .layer = layer,
                                   .from = from,
                                   .to = to,
                                   .kernels = 1});
    r->end = to, r->part = region->part;
}

void recording_transfer(struct recording *r, enum lane lane, const char *name, int64_t layer,
                        int64_t from, int64_t to)
{
    add_block(&r->lane[lane], (struct block){.name = name, .layer = layer, .from = from, .to = to});
}

/* ── the simulated run ───────────────────────────────────────────────────────── */

struct watching {
    const struct program *program;
    const struct item *last; /* of compute */
    struct recording recording;
};

static enum lane transfer_lane(const struct item *item)
{
    return item->kind == ITEM_GATHER                                 ? LANE_GATHER
           : item->kind == ITEM_REPLICAS || item->kind == ITEM_PARTS ? LANE_REPLICAS
                                                                     : LANE_REDUCE;
}

static void record(struct watcher *w, const struct item *item, int kernel, int64_t layer,
                   int64_t from, int64_t to)
{
    struct watching *now = w->context;
    const struct program *p = now->program;
    if (kernel < 0) {
        recording_transfer(&now->recording, transfer_lane(item), item->what, layer, from, to);
        return;
    }
    /* before a kernel lies its launch; within a run nothing is waited for */
    int64_t ready = item != now->last ? from - p->kernel[kernel].launch : 0;
    recording_compute(&now->recording, &p->region[p->region_of[item->number]], layer, ready, from,
                      to);
    now->last = item;
}

struct recording recording_of(const struct rung *r, int64_t *end)
{
    struct watching now = {.program = r->program, .recording = recording_begin()};
    struct watcher w = {record, &now};
    *end = engine_run(engine_new(r->program), true, &w)->picoseconds;
    return now.recording;
}

/* ── drawing ─────────────────────────────────────────────────────────────────── */

static const char *tip_of(const struct block *b, int64_t begin)
{
    const char *layer = b->layer >= 0 ? text_format(" [%lld]", (long long)b->layer) : "",
               *kernels = b->kernels ? text_format(", %d kernels", b->kernels) : "";
    return text_format("%s%s%s\n%s, from %s", b->name, layer, kernels,
                       html_seconds((double)(b->to - b->from) * 1e-12),
                       html_seconds((double)(b->from - begin) * 1e-12));
}

/* Blocks that are thinner than a pixel are joined to their neighbour of the same kind. */
static void draw_lane(struct text *t, const block_list *all, enum lane lane, int rows,
                      int64_t begin, const struct scale *x, bool tips)
{
    const int each = 1000 / rows, top = ((int)lane - (int)LANE_COMPUTE) * each + each / 6;
    static const int colour[STEP_PARTS] = {
        [STEP_FORWARD] = 0, [STEP_LOSS] = 3, [STEP_BACKWARD] = 2, [STEP_UPDATE] = 1};
    const double thin = (x->high - x->low) / 2000;
    for (int i = 0; i < all->n; i++) {
        struct block b = all->item[i];
        if (b.to <= begin) continue;
        while (i + 1 < all->n) {
            const struct block *n = &all->item[i + 1];
            bool same = n->waited == b.waited && n->part == b.part && n->name == b.name;
            if (!same || (double)(n->from - b.to) * 1e-12 > thin ||
                (tips && (double)(b.to - b.from) * 1e-12 > thin))
                break;
            b.to = n->to, b.kernels += n->kernels, i++;
        }
        double from = axis_place(x, (double)(b.from > begin ? b.from - begin : 0) * 1e-12),
               to = axis_place(x, (double)(b.to - begin) * 1e-12);
        const char *class = b.waited               ? "wait"
                            : lane == LANE_COMPUTE ? text_format("k%d", colour[b.part])
                                                   : text_format("k%d", lane == LANE_GATHER   ? 4
                                                                        : lane == LANE_REDUCE ? 6
                                                                                              : 5);
        text_add(t, "<rect class=\"%s\" x=\"%.2f\" y=\"%d\" width=\"%.2f\" height=\"%d\"", class,
                 from, top, to - from, each * 2 / 3);
        if (tips) text_add(t, " data-tip=\"%s\"", html_text(tip_of(&b, begin)));
        text_add(t, "/>\n");
    }
}

const char *const lanes_names[] = {"compute", "gather", "reduce", "replicas"};

int lanes_rows(const struct recording *r) { return r->lane[LANE_REPLICAS].n ? 4 : 3; }

void lanes_draw(struct text *t, const struct recording *r, const struct scale *x, bool tips)
{
    for (int i = 0; i < lanes_rows(r); i++) {
        enum lane lane = (enum lane)(LANE_COMPUTE + i);
        draw_lane(t, &r->lane[lane], lane, lanes_rows(r), r->begin, x, tips);
    }
}

void lanes_chart(struct text *t, const struct recording *r, int64_t end, const char *name)
{
    struct scale x = axis_over(0, (double)(end - r->begin) * 1e-12, false), y = {0, 1000, 1000};
    chart_open(t, name, 180, &y, NULL);
    lanes_draw(t, r, &x, true);
    struct text names = {0};
    const int rows = lanes_rows(r);
    for (int i = 0; i < rows; i++)
        text_add(&names, "<span class=\"y\" style=\"bottom:%d%%\">%s</span>\n",
                 100 - (100 * i + 50) / rows, lanes_names[i]);
    chart_close(t, &x, label_seconds, names.bytes);
    text_add(t,
             "<p class=\"soft legend\"><i class=\"k0\"></i>forward &emsp; <i class=\"k3\"></i>loss "
             "&emsp; <i class=\"k2\"></i>backward &emsp; <i class=\"k1\"></i>update &emsp; "
             "<i class=\"wait\"></i>compute waits &emsp; <i class=\"k4\"></i>gather &emsp; "
             "<i class=\"k6\"></i>reduce%s</p>\n",
             rows > 3 ? " &emsp; <i class=\"k5\"></i>over replicas" : "");
}

void section_lanes(struct text *t, const struct rung *r)
{
    int64_t end;
    const struct recording rec = recording_of(r, &end);
    text_add(t, "<section>\n<h2>One step, lane by lane</h2>\n<p class=\"soft\">");
    if (rec.micro_batches > 1)
        text_add(t, "The last of %d micro-batches and the update. ", rec.micro_batches);
    text_add(t, "Over the whole step compute waits %s for collectives, %.1f %%.</p>\n",
             html_seconds((double)r->prediction->exposed_all * 1e-12),
             100 * (double)r->prediction->exposed_all / (double)r->prediction->step);
    lanes_chart(t, &rec, end, "Compute, gather and reduce over the step");
    text_add(t, "</section>\n");
}
