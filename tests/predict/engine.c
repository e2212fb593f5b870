/* The discrete-event engine against what can be known without it: schedules made by hand whose time
 * is a short formula, and for plans the laws that any run keeps: extrapolated equals unrolled, more
 * bandwidth is never slower, serial is never faster than overlapped, parts sum up.
 *     engine hand            closed forms
 *     engine PLAN [SET…]     the laws, for one plan */
#include "base/diagnostics.h"
#include "predict/measured.h"
#include "passes/pipeline.h"
#include "predict/prediction.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int wrong;

static void hold(bool fine, const char *what, long long got, long long want)
{
    if (fine) return;
    printf("%s: %lld, not %lld\n", what, got, want);
    wrong = 1;
}

static void equal(const char *what, int64_t got, int64_t want)
{
    hold(got == want, what, (long long)got, (long long)want);
}

/* ── by hand ─────────────────────────────────────────────────────────────────── */

/* A loop of `layers`: gather the next layer, wait for this one, compute; before it the first
 * gather. In company compute takes `slow` more, and a collective `disturbed` times as long. */
struct loop {
    int64_t layers, compute, latency, bytes, slow, accumulation, host;
    double disturbed;
    int64_t reduce, slots; /* each layer also reduces, through so many slots; 0: none does */
    int64_t replicas;      /* after which its shard is summed over the replicas */
    bool one_order, far;   /* on one lane with all else; over another link */
};

static struct program *loop_program(const struct loop *l)
{
    struct program *p = calloc(1, sizeof *p);
    struct parts *parts = TAKE_MANY(struct parts, 3);
    parts[0] = (struct parts){
        .part = {{.latency = l->latency, .bytes = l->bytes, .company = WITH_NODE}}, .n = 1};
    parts[0].total = l->latency + l->bytes;
    parts[1] = (struct parts){.part = {{.bytes = l->reduce, .company = WITH_NODE}}, .n = 1};
    parts[1].total = l->reduce;
    parts[2] = (struct parts){
        .part = {{.bytes = l->replicas, .company = l->far ? WITH_NETWORK : WITH_NODE}}, .n = 1};
    parts[2].total = l->replicas;
    *p = (struct program){.accumulation = l->accumulation ? l->accumulation : 1,
                          .devices = 1,
                          .host = l->host,
                          .slowest = 1,
                          .late = 1,
                          .disturbed = l->disturbed ? l->disturbed : 1,
                          .events = 5};
    p->kernel = TAKE_MANY(struct timed, 2);
    for (int i = 0; i < 2; i++)
        p->kernel[i] = (struct timed){
            .class = COST_GEMM,
            .time = {.picoseconds = {l->compute / 2, l->compute / 2 + l->slow / 2,
                                     l->compute / 2 + l->slow / 2, l->compute / 2 + l->slow}}};
    p->kernels = 2;
    p->region = TAKE_MANY(struct part_region, 2);
    p->regions = 2;
    p->by_number = TAKE_MANY(struct item *, 16);
    p->region_of = TAKE_MANY(int, 16);
    for (int r = 0; r < 2; r++) {
        struct part_region *region = &p->region[r];
        *region = (struct part_region){.name = r ? "loop" : "before",
                                       .part = STEP_FORWARD,
                                       .count = r ? l->layers : 1,
                                       .stage = TAKE(struct stage),
                                       .stages = 1};
        region->kind = TAKE_MANY(int16_t, region->count);
        region->stage_of = TAKE_MANY(int16_t, region->count);
        if (r) region->kind[region->count - 1] = 1; /* the last gathers nothing */
        struct stage *s = region->stage;
        s->item = TAKE_MANY(struct item, 8);
        struct item *it = &s->item[s->n++];
        *it = (struct item){.kind = ITEM_GATHER,
                            .what = "gather",
                            .shift = r,
                            .from = 0,
                            .to = r ? l->layers - 1 : 1,
                            .ring = 2,
                            .loop = true,
                            .count = l->layers};
        it->gather = TAKE_MANY(const struct parts *, l->layers);
        for (int64_t i = 0; i < l->layers; i++) it->gather[i] = &parts[0];
        if (r) {
            s->item[s->n++] = (struct item){.kind = ITEM_WAIT, .ring = 2, .loop = true};
            struct item *run = &s->item[s->n++];
            *run = (struct item){.kind = ITEM_RUN, .kernel = 0, .kernels = 2, .ring = 1};
            for (int c = 0; c < COMPANIES; c++) {
                run->clock[c] = TAKE_MANY(int64_t, 3);
                for (int k = 0; k < 2; k++)
                    run->clock[c][k + 1] = run->clock[c][k] + p->kernel[k].time.picoseconds[c];
            }
            if (l->slots) {
                s->item[s->n++] = (struct item){
                    .kind = ITEM_WAIT, .event = 2, .ring = l->slots, .loop = true, .slot = true};
                struct item *reduce = &s->item[s->n++];
                *reduce = (struct item){.kind = ITEM_REDUCE,
                                        .what = "reduce",
                                        .event = 2,
                                        .ring = l->slots,
                                        .loop = true,
                                        .first = true,
                                        .last = true};
                for (int m = 0; m < 4; m++) reduce->reduce[m] = parts[1];
                struct item *sum = &s->item[s->n];
                *sum = (struct item){.kind = ITEM_REPLICAS,
                                     .what = "sum over replicas",
                                     .series = l->one_order ? SERIES_SHARDS : SERIES_REPLICAS,
                                     .event = 4,
                                     .ring = 1};
                sum->reduce[PART_LAST] = parts[2];
                s->n += l->replicas > 0;
            }
        }
        for (int i = 0; i < s->n; i++) {
            s->item[i].number = p->items;
            p->region_of[p->items] = r;
            p->by_number[p->items++] = &s->item[i];
        }
    }
    return p;
}

static const struct outcome *run(struct program *p)
{
    const struct outcome *o = engine_run(engine_new(p), false, NULL);
    const struct outcome *u = engine_run(engine_new(p), true, NULL);
    equal("extrapolated against unrolled", o->picoseconds, u->picoseconds);
    for (int i = 0; i < p->items; i++) {
        equal("count of an item", o->tally[i].count, u->tally[i].count);
        equal("extra of an item", o->tally[i].extra, u->tally[i].extra);
        for (int k = 0; k < REASONS; k++)
            equal("exposed of an item", o->tally[i].exposed[k], u->tally[i].exposed[k]);
    }
    for (int i = 0; i < STEP_PARTS; i++) equal("part of the step", o->part[i], u->part[i]);
    return o;
}

static int64_t exposed(const struct program *p, const struct outcome *o, enum reason why)
{
    int64_t sum = 0;
    for (int i = 0; i < p->items; i++) sum += o->tally[i].exposed[why];
    return sum;
}

static void by_hand(void)
{
    /* compute is longer: the first gather shows, nothing else */
    struct loop l = {.layers = 50, .compute = 1000, .latency = 100, .bytes = 700};
    struct program *p = loop_program(&l);
    const struct outcome *o = run(p);
    equal("hidden gathers", o->picoseconds, 800 + 50 * 1000);
    equal("their latency", exposed(p, o, REASON_LATENCY), 100);
    equal("their link", exposed(p, o, REASON_LINK), 700);
    hold(o->iterations < 10, "iterations that are run", o->iterations, 10);

    /* gathers are longer: they follow each other, and the last layer computes after them */
    l = (struct loop){.layers = 50, .compute = 1000, .latency = 500, .bytes = 2500};
    p = loop_program(&l);
    o = run(p);
    equal("gathers that bind", o->picoseconds, 50 * 3000 + 1000);
    /* of each but the first 1000 are hidden; what is left when compute comes is the end */
    equal("their latency", exposed(p, o, REASON_LATENCY), 500);
    equal("their link", exposed(p, o, REASON_LINK), 2500 + 49 * 2000);

    /* also a reduction of 1500 a layer through one slot. A gather is issued after the reduction
     * before it, which the slot waits for; so from layer 2 on a layer takes both: 300 that compute
     * waits, 1000 of the reduction under compute, 500 for the slot. At the end one reduction is
     * left */
    l = (struct loop){.layers = 40, .compute = 1000, .bytes = 300, .reduce = 1500, .slots = 1};
    p = loop_program(&l);
    o = run(p);
    equal("one slot", o->picoseconds, 300 + 1000 + 1500 + 38 * 1800 + 1500);
    equal("waits for it", exposed(p, o, REASON_SLOT), 39 * 500);
    equal("other waits", exposed(p, o, REASON_LINK), 300 + 38 * 300 + 1500);

    /* two slots: now gathers wait for their turn, and the one order binds: both, again and again */
    l.slots = 2;
    l.layers = 400;
    p = loop_program(&l);
    o = run(p);
    hold(exposed(p, o, REASON_ORDER) > 300 * 500, "waits for the order",
         exposed(p, o, REASON_ORDER), 300 * 500);
    /* from the first reduction on collectives never stop */
    equal("all collectives", o->picoseconds, 1300 + 400 * 1500 + 398 * 300);

    /* micro-batches: each begins with all gathers done, and takes what the first took */
    l = (struct loop){.layers = 7, .compute = 1000, .bytes = 600, .accumulation = 1};
    int64_t once = run(loop_program(&l))->picoseconds;
    l.accumulation = 1000;
    equal("a thousand micro-batches", run(loop_program(&l))->picoseconds, 1000 * once);

    /* in company compute takes half as long again: a gather of 600 covers 600 of 1500, so 400 of
     * 1000 are done; then alone. The last layer gathers nothing */
    l = (struct loop){.layers = 11, .compute = 1000, .bytes = 600, .slow = 500};
    p = loop_program(&l);
    o = run(p);
    equal("compute in company", o->picoseconds, 600 + 10 * (600 + 600) + 1000);

    /* the collective is disturbed too: 600 become 900, in which 600 of 1000 are computed */
    l.disturbed = 1.5;
    p = loop_program(&l);
    o = run(p);
    equal("both disturbed", o->picoseconds, 600 + 10 * (900 + 400) + 1000);

    /* sums over replicas on a lane of their own, hidden but for the last one: its layer's
     * reduction of 200, then 700 */
    l = (struct loop){.layers = 30,
                      .compute = 1000,
                      .bytes = 300,
                      .reduce = 200,
                      .slots = 1,
                      .replicas = 700,
                      .far = true};
    p = loop_program(&l);
    o = run(p);
    equal("sums over replicas", o->picoseconds, 300 + 30 * 1000 + 200 + 700);
    equal("the last is exposed", exposed(p, o, REASON_LINK), 300 + 200 + 700);
    /* in one order with the others a layer has 1200 of collectives, and the gathers wait */
    l.one_order = true;
    int64_t one_order = run(loop_program(&l))->picoseconds;
    hold(one_order >= 300 + 30 * 900 + 29 * 300, "one order binds", one_order, 36000);
    hold(one_order > o->picoseconds, "one order is slower", one_order, o->picoseconds);
    /* longer than a layer: they follow each other from the first reduction on, and nothing else
     * waits for them */
    l.one_order = false, l.replicas = 1700;
    p = loop_program(&l);
    o = run(p);
    equal("sums that bind", o->picoseconds, 300 + 1000 + 200 + 30 * 1700);
    equal("nothing waits for its turn", exposed(p, o, REASON_ORDER), 0);
    /* both reductions and sums on one link: while they meet each takes twice as long. At the end of
     * layer 1 a reduction and a gather of 500 are issued beside a sum of 300 */
    l = (struct loop){
        .layers = 2, .compute = 1000, .bytes = 100, .reduce = 400, .slots = 2, .replicas = 900};
    p = loop_program(&l);
    o = run(p);
    /* 100 gather, 1000 layer 0, reduction until 1500, alone in the lane; the sum alone until 2100,
     * when the other reduction is issued: 300 are left, of which 600 pass beside 300 of it; the
     * reduction ends alone 100 later at 2800, its sum at 3700 */
    equal("two on one link", o->picoseconds, 3700);
    /* compute beside both is slower than beside one */
    l = (struct loop){.layers = 2,
                      .compute = 1000,
                      .bytes = 100,
                      .reduce = 100,
                      .slots = 2,
                      .replicas = 5000,
                      .slow = 500,
                      .far = true};
    p = loop_program(&l);
    o = run(p);
    /* 100 gather; layer 0 beside the other gather, which costs 34, then alone; layer 1 beside the
     * reduction of 100 and then the sum, which cost 500; one sum after the other */
    equal("sums of both layers", o->tally[p->items - 1].count, 2);
    equal("compute in company of a sum", o->picoseconds, 100 + 1034 + 100 + 2 * 5000);
    equal("what that costs", o->tally[3].extra, 34 + 500);

    /* between two steps */
    l = (struct loop){.layers = 2, .compute = 1000, .bytes = 10, .host = 77};
    p = loop_program(&l);
    equal("a step with its host", step_picoseconds(p, run(p)), 2010 + 77);
    p->late = 1.5;
    equal("a step that jitters", step_picoseconds(p, run(p)), 2087 + 1044);
}

/* ── plans ───────────────────────────────────────────────────────────────────── */

struct summed {
    int64_t last, compute;
    int64_t kernels;
};

static void sum(struct watcher *w, const struct item *item, int kernel, int64_t layer, int64_t from,
                int64_t to)
{
    struct summed *s = w->context;
    (void)layer, (void)item;
    if (to < from) wrong = 1, printf("a kernel ends before it begins\n");
    if (to > s->last) s->last = to;
    if (kernel >= 0) s->compute += to - from, s->kernels++;
}

static int64_t total(const struct prediction *t)
{
    int64_t all = t->slowest + t->contention + t->launch + t->host + t->jitter;
    for (int k = 0; k < COST_CLASSES; k++) all += t->kernel[k];
    for (int k = 0; k < REASONS; k++) all += t->exposed[k];
    return all;
}

static int64_t undisturbed(struct plan *p, const struct graph *g, double links, int64_t *serial)
{
    struct plan at = *p;
    at.cluster.contention.core = at.cluster.contention.link = at.cluster.contention.traffic = 0;
    at.cluster.contention.multiprocessors = 0;
    at.cluster.jitter = 0;
    at.cluster.link_node.bandwidth *= links;
    at.cluster.link_network.bandwidth *= links;
    struct machine m = machine_of(&at);
    struct program *program = program_of(&at, &m, g);
    const struct outcome *o = run(program);
    *serial = 0;
    int64_t compute = 0, series[SERIES] = {0};
    for (int i = 0; i < program->items; i++) {
        const struct item *it = program->by_number[i];
        series[it->series] += o->tally[i].busy;
        if (it->kind == ITEM_RUN) compute += o->tally[i].count * it->clock[ALONE][it->kernels];
        *serial += o->tally[i].busy;
        equal("extra without contention", o->tally[i].extra, 0);
    }
    hold(o->picoseconds >= compute, "never faster than compute", o->picoseconds, compute);
    for (int k = 0; k < SERIES; k++)
        hold(o->picoseconds >= series[k], "never faster than its collectives", o->picoseconds,
             series[k]);
    /* two on one link take twice as long, and no longer than one after the other */
    *serial += compute;
    hold(o->picoseconds <= *serial, "never slower than serial", o->picoseconds, *serial);
    return o->picoseconds;
}

/* Durations that are the predicted ones give the predicted step back, without contention. */
static void given_back(const struct plan *p, const struct graph *g)
{
    struct plan at = *p;
    at.cluster.contention.core = at.cluster.contention.link = at.cluster.contention.traffic = 0;
    at.cluster.contention.multiprocessors = 0;
    at.cluster.jitter = at.cluster.device_spread = 0;
    struct machine m = machine_of(&at);
    struct program *program = program_of(&at, &m, g);
    program->apart = true;
    int64_t before = step_picoseconds(program, engine_run(engine_new(program), true, NULL));
    struct durations d = {.between = at.cluster.host.launch, .host = at.cluster.host.step};
    d.kernel = TAKE_MANY(struct duration, program->kernels + 1);
    d.collective = TAKE_MANY(struct duration, 2 * program->units + 4 * program->items + 1);
    for (int i = 0; i < program->kernels; i++) {
        double calls = 1; /* a sum of squares is also called to begin */
        for (int k = 0; k < program->work[i].ops; k++)
            if (program->work[i].op[k].op == OP_sum_squares) calls = 2;
        d.kernel[d.kernels++] = (struct duration){
            .name = program->kernel[i].name,
            .calls = calls,
            .seconds = (double)program->kernel[i].time.picoseconds[ALONE] / PICOSECONDS / calls};
    }
    for (int i = 0; i < program->units; i++)
        d.collective[d.collectives++] =
            (struct duration){.name = "gather",
                              .unit = program->unit_name[i],
                              .calls = 1,
                              .seconds = (double)program->gather[i].total / PICOSECONDS};
    for (int i = 0; i < program->units && program->cut; i++)
        d.collective[d.collectives++] =
            (struct duration){.name = "gather over replicas",
                              .unit = program->unit_name[i],
                              .calls = 1,
                              .seconds = (double)program->together[i].total / PICOSECONDS};
    for (int i = 0, sums = 0; i < program->items; i++) {
        const struct item *it = program->by_number[i];
        for (int micro = 0; it->kind == ITEM_REDUCE && micro < 4; micro++)
            d.collective[d.collectives++] =
                (struct duration){.name = "reduce",
                                  .unit = program->unit_name[it->unit],
                                  .micro = micro,
                                  .calls = 1,
                                  .seconds = (double)it->reduce[micro].total / PICOSECONDS};
        if (it->kind == ITEM_REPLICAS && it->reduce[PART_LAST].n)
            d.collective[d.collectives++] =
                (struct duration){.name = "sum over replicas",
                                  .unit = program->unit_name[it->unit],
                                  .micro = -1,
                                  .calls = 1,
                                  .seconds = (double)it->reduce[PART_LAST].total / PICOSECONDS};
        if (it->kind == ITEM_SUM)
            d.collective[d.collectives++] =
                (struct duration){.name = "sum over ranks",
                                  .unit = "",
                                  .instance = sums++,
                                  .micro = -1,
                                  .calls = 1,
                                  .seconds = (double)it->reduce[0].total / PICOSECONDS};
    }
    const char *without = program_measured(program, &d);
    if (without) printf("without a duration: %s\n", without), wrong = 1;
    /* the measured lane has no part that takes nothing: a picosecond each */
    int64_t after = step_picoseconds(program, engine_run(engine_new(program), true, NULL));
    hold(llabs(after - before) <= program->items * 1000, "a step of given durations", after,
         before);
    d.kernels--;
    hold(program_measured(program, &d) != NULL, "a kernel without a duration", 0, 1);
}

static void laws(const char *path, const char *const *set, int n_set)
{
    const char *const *open_keys;
    int n_open;
    struct plan *p = plan_load(path, set, n_set, &open_keys, &n_open);
    struct graph *g = p ? pass_lower(p) : NULL;
    if (!g) {
        diagnostics_print(stdout, false);
        exit(2);
    }
    g = pipeline_run(g, LEVEL_MEMORY);
    struct program *program;
    struct prediction *t = predict(p, g, &program);
    if (!t) {
        printf("missing: %s\n", program->missing.item[0]);
        exit(2);
    }
    run(program);
    equal("the sum of all parts", total(t), t->step);
    int64_t parts = t->host + t->jitter, rates = 0;
    for (int i = 0; i < STEP_PARTS; i++) parts += t->part[i];
    for (int i = 0; i < program->machine.rates; i++) rates += t->rate[i];
    equal("the sum of the parts of a step", parts, t->step);
    equal("the sum over rows", rates, t->step);
    struct prediction *again = predict(p, g, &program);
    equal("the same once more", again->step, t->step);
    struct summed s = {0};
    struct watcher w = {sum, &s};
    const struct outcome *o = engine_run(engine_new(program), true, &w);
    equal("the trace's last instant", s.last, o->picoseconds);
    int64_t kernels = 0, serial, before = 0;
    for (int i = 0; i < program->items; i++)
        if (program->by_number[i]->kind == ITEM_RUN)
            kernels += o->tally[i].count * program->by_number[i]->kernels;
    equal("kernels in the trace", s.kernels, kernels);
    given_back(p, g);
    for (double links = 0.25; links <= 64; links *= 4) {
        int64_t now = undisturbed(p, g, links, &serial);
        hold(!before || now <= before, "more bandwidth is never slower", now, before);
        before = now;
    }
}

int main(int argc, char **argv)
{
    if (argc < 2) return 3;
    if (!strcmp(argv[1], "hand"))
        by_hand();
    else
        laws(argv[1], (const char *const *)(argv + 2), argc - 2);
    return wrong;
}
