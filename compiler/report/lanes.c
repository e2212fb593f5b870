/* The lanes of a step: the same run of the schedule that the prediction comes from, watched. A step
 * of many micro-batches repeats itself, so the last one and the update are shown. */
#include "report/sections.h"

#include <string.h>

enum { LANES = LANE_REDUCE + 1 };

/* Neighbours on a lane that do one thing: kernels of one layer of a region, or a transfer. */
struct block {
    const char *name;
    enum part_of_step part; /* of compute */
    int64_t layer, from, to;
    int kernels;
    bool waited; /* nothing ran: compute waited for a collective */
};
typedef VECTOR(struct block) block_list;

struct recording {
    const struct program *program;
    block_list lane[LANES];
    const struct item *last; /* of compute */
    int64_t end;             /* of compute */
    int64_t begin;           /* of the last micro-batch */
    enum part_of_step part;
    int micro_batches;
};

static void add_block(block_list *all, struct block b)
{
    struct block *last = all->n ? &all->item[all->n - 1] : NULL;
    if (last && last->name == b.name && last->layer == b.layer && last->waited == b.waited &&
        !b.waited && b.kernels)
        last->to = b.to, last->kernels++;
    else
        PUSH(all, b);
}

static void record(struct watcher *w, const struct item *item, int kernel, int64_t layer,
                   int64_t from, int64_t to)
{
    struct recording *r = w->context;
    const struct program *p = r->program;
    if (kernel < 0) {
        add_block(&r->lane[item->kind == ITEM_GATHER ? LANE_GATHER : LANE_REDUCE],
                  (struct block){.name = item->what, .layer = layer, .from = from, .to = to});
        return;
    }
    const struct part_region *region = &p->region[p->region_of[item->number]];
    block_list *lane = &r->lane[LANE_COMPUTE];
    /* before a kernel lies its launch; what is beyond was waited */
    int64_t begin = from - p->kernel[kernel].launch;
    bool next = region->part == STEP_FORWARD && r->part != STEP_FORWARD;
    if (next) r->micro_batches++, r->begin = r->end;
    if (item != r->last && begin > r->end)
        add_block(lane, (struct block){.name = "waits for a collective",
                                       .layer = -1,
                                       .from = r->end,
                                       .to = begin,
                                       .waited = true});
    add_block(lane, (struct block){.name = region->name,
                                   .part = region->part,
                                   .layer = layer,
                                   .from = from,
                                   .to = to,
                                   .kernels = 1});
    r->last = item, r->end = to, r->part = region->part;
}

static const char *tip_of(const struct block *b, int64_t begin)
{
    const char *layer = b->layer >= 0 ? text_format(" [%lld]", (long long)b->layer) : "",
               *kernels = b->kernels ? text_format(", %d kernels", b->kernels) : "";
    return text_format("%s%s%s\n%s, from %s", b->name, layer, kernels,
                       html_seconds((double)(b->to - b->from) * 1e-12),
                       html_seconds((double)(b->from - begin) * 1e-12));
}

/* Blocks that are thinner than a pixel are joined to their neighbour of the same kind. */
static void add_lane(struct text *t, const block_list *all, enum lane lane, int64_t begin,
                     const struct scale *x)
{
    static const int top[LANES] = {[LANE_COMPUTE] = 60, [LANE_GATHER] = 400, [LANE_REDUCE] = 740};
    const double thin = (x->high - x->low) / 2000;
    for (int i = 0; i < all->n; i++) {
        struct block b = all->item[i];
        if (b.to <= begin) continue;
        while (i + 1 < all->n) {
            const struct block *n = &all->item[i + 1];
            bool same = n->waited == b.waited && n->part == b.part && n->name == b.name;
            if (!same || (double)(n->from - b.to) * 1e-12 > thin ||
                (double)(b.to - b.from) * 1e-12 > thin)
                break;
            b.to = n->to, b.kernels += n->kernels, i++;
        }
        double from = axis_place(x, (double)(b.from > begin ? b.from - begin : 0) * 1e-12),
               to = axis_place(x, (double)(b.to - begin) * 1e-12);
        static const int colour[STEP_PARTS] = {
            [STEP_FORWARD] = 0, [STEP_LOSS] = 3, [STEP_BACKWARD] = 2, [STEP_UPDATE] = 1};
        const char *class = b.waited ? "wait"
                            : lane == LANE_COMPUTE
                                ? text_format("k%d", colour[b.part])
                                : text_format("k%d", lane == LANE_GATHER ? 4 : 6);
        text_add(t,
                 "<rect class=\"%s\" x=\"%.2f\" y=\"%d\" width=\"%.2f\" height=\"220\" "
                 "data-tip=\"%s\"/>\n",
                 class, from, top[lane], to - from, html_text(tip_of(&b, begin)));
    }
}

void section_lanes(struct text *t, const struct rung *r)
{
    struct recording rec = {.program = r->program, .part = STEP_UPDATE};
    struct watcher w = {record, &rec};
    const struct outcome *o = engine_run(engine_new(r->program), true, &w);
    int64_t end = o->picoseconds;
    struct scale x = axis_over(0, (double)(end - rec.begin) * 1e-12, false), y = {0, 1000, 1000};
    text_add(t, "<section>\n<h2>One step, lane by lane</h2>\n<p class=\"soft\">");
    if (rec.micro_batches > 1)
        text_add(t, "The last of %d micro-batches and the update. ", rec.micro_batches);
    text_add(t, "Over the whole step compute waits %s for collectives, %.1f %%.</p>\n",
             html_seconds((double)r->prediction->exposed_all * 1e-12),
             100 * (double)r->prediction->exposed_all / (double)r->prediction->step);
    chart_open(t, "Compute, gather and reduce over the step", 180, &y, NULL);
    for (enum lane lane = LANE_COMPUTE; lane <= LANE_REDUCE; lane++)
        add_lane(t, &rec.lane[lane], lane, rec.begin, &x);
    chart_close(t, &x, label_seconds,
                "<span class=\"y\" style=\"bottom:83%\">compute</span>\n"
                "<span class=\"y\" style=\"bottom:49%\">gather</span>\n"
                "<span class=\"y\" style=\"bottom:15%\">reduce</span>\n");
    text_add(t,
             "<p class=\"soft legend\"><i class=\"k0\"></i>forward &emsp; <i class=\"k3\"></i>loss "
             "&emsp; <i class=\"k2\"></i>backward &emsp; <i class=\"k1\"></i>update &emsp; "
             "<i class=\"wait\"></i>compute waits &emsp; <i class=\"k4\"></i>gather &emsp; "
             "<i class=\"k6\"></i>reduce</p>\n</section>\n");
}
