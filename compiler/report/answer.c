/* The sentence that answers the question, and the two sums of the step's time behind it. */
#include "report/sections.h"

static double seconds(int64_t picoseconds) { return (double)picoseconds * 1e-12; }

static double share(const struct rung *r, int64_t time)
{
    return 100 * (double)time / (double)r->prediction->step;
}

/* The largest loss against a step that only multiplies: what a person would attack first. */
static const char *obstacle(const struct rung *r)
{
    const struct prediction *p = r->prediction;
    int most = 0;
    for (int k = 1; k < COST_CLASSES; k++)
        if (p->kernel[k] > p->kernel[most]) most = k;
    if (p->exposed_all > p->kernel[most])
        return text_format("communication that nothing hides, %.0f %% of the step",
                           share(r, p->exposed_all));
    int limit = 0;
    for (int i = 1; i < 3; i++)
        if (p->limit[most][i] > p->limit[most][limit]) limit = i;
    return text_format("%s, %.0f %% of the step, bound by %s; exposed communication is %.0f %%",
                       cost_class_names[most], share(r, p->kernel[most]), limit_names[limit],
                       share(r, p->exposed_all));
}

void section_answer(struct text *t, const struct rung *r)
{
    const struct prediction *p = r->prediction;
    const struct ledger *l = r->ledger;
    const char *verdict = l->verdict == FITS    ? "It fits"
                          : l->verdict == TIGHT ? "It fits tightly"
                                                : "It does not fit";
    text_add(t,
             "<p class=\"answer%s\">%s: %s of the %s that each device offers (%.1f %%). A step "
             "takes %s (predicted; %s to %s), %s tokens/s per device. Most of it is %s.</p>\n",
             l->verdict == EXCEEDS ? " bad" : "", verdict, text_bytes(l->peak_bytes),
             text_bytes(l->limit_bytes), 100 * (double)l->peak_bytes / (double)l->limit_bytes,
             html_seconds(r->step_seconds), html_seconds(seconds(p->low)),
             html_seconds(seconds(p->high)), text_count((int64_t)(r->per_device + 0.5)),
             obstacle(r));
    text_add(t,
             "<p class=\"soft\">%s, %s devices: fsdp %s x dp %s%s, local batch %s, accumulation "
             "%s; %s tokens per step.",
             html_text(ledger_device(r->plan)), text_count(l->devices), text_count(r->plan->fsdp),
             text_count(r->plan->dp), plan_parts_optimizer(r->plan) ? ", optimizer all" : "",
             text_count(r->plan->local), text_count(r->plan->accumulation),
             text_count(r->plan->global * r->plan->sequence));
    if (r->mfu[0] > 0) text_add(t, " MFU %.1f %% (full).", 100 * r->mfu[0]);
    text_add(t, " %.0f %% of the step rests on assumed rates.%s</p>\n", 100 * p->assumed,
             p->outside ? " Some shapes lie outside the measured grids." : "");
}

static void add_bar(struct text *t, const struct rung *r, const char *name, int64_t time)
{
    if (time)
        text_add(t,
                 "<tr><td>%s</td><td class=\"n\">%s</td><td class=\"n\">%.1f %%</td>"
                 "<td class=\"bar\"><b style=\"width:%.2f%%\"></b></td></tr>\n",
                 html_text(name), html_seconds(seconds(time)), share(r, time), share(r, time));
}

void section_time(struct text *t, const struct rung *r)
{
    const struct prediction *p = r->prediction;
    static const char head[] = "<div class=\"wide\"><table>\n<caption>%s</caption>\n";
    text_add(t, "<section>\n<h2>Where the time goes</h2>\n");
    text_add(t, head, "by part of the step");
    for (int i = 0; i < STEP_PARTS; i++) add_bar(t, r, step_part_names[i], p->part[i]);
    add_bar(t, r, "host", p->host);
    add_bar(t, r, "jitter", p->jitter);
    text_add(t, "</table></div>\n");
    text_add(t, head, "by class of work");
    for (int k = 0; k < COST_CLASSES; k++) add_bar(t, r, cost_class_names[k], p->kernel[k]);
    add_bar(t, r, "launch, between kernels", p->launch);
    add_bar(t, r, "slowest device", p->slowest);
    add_bar(t, r, "contention with collectives", p->contention);
    for (int i = 0; i < REASONS; i++)
        add_bar(t, r, text_format("exposed: %s", reason_names[i]), p->exposed[i]);
    add_bar(t, r, "host", p->host);
    add_bar(t, r, "jitter", p->jitter);
    text_add(t, "</table></div>\n</section>\n");
}
