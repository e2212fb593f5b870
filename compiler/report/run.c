/* The curves of a run that has been, from what a trainer's --metrics wrote. */
#include "report/sections.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

struct sample {
    double step, value;
};
typedef VECTOR(struct sample) sample_list;

static const char *label_plain(double x) { return text_format("%.4g", x); }

/* One curve; beside: another of the same unit, NULL: none. */
static void run_chart(struct text *t, const char *name, const sample_list *all,
                      const sample_list *beside, bool from_zero, const char *(*label)(double))
{
    if (all->n < 2) return;
    double low = INFINITY, high = -INFINITY, last = all->item[all->n - 1].step;
    const sample_list *both[2] = {all, beside};
    for (int b = 0; b < 2 && both[b]; b++)
        for (int i = 0; i < both[b]->n; i++)
            low = fmin(low, both[b]->item[i].value), high = fmax(high, both[b]->item[i].value);
    double room = 0.06 * (high > low ? high - low : fabs(high) + 1);
    struct scale x = axis_over(all->item[0].step, last, false),
                 y = axis_over(from_zero ? 0 : low - room, high + room, false);
    if (x.step < 1) x.step = 1;
    text_add(t, "<p>%s</p>\n", html_text(name));
    chart_open(t, name, 200, &y, label);
    for (int b = 1; b >= 0; b--) {
        if (!both[b] || !both[b]->n) continue;
        double *px = TAKE_MANY(double, both[b]->n), *py = TAKE_MANY(double, both[b]->n);
        for (int i = 0; i < both[b]->n; i++)
            px[i] = axis_place(&x, both[b]->item[i].step),
            py[i] = 1000 - axis_place(&y, both[b]->item[i].value);
        chart_line(t, b ? "k5 dash" : "k0", px, py, both[b]->n);
    }
    chart_close(t, &x, label_plain, NULL);
}

static void take_sample(sample_list *to, const json_t *row, double step, const char *key)
{
    const json_t *v = json_object_get(row, key);
    if (json_is_number(v) && isfinite(json_number_value(v)))
        PUSH(to, ((struct sample){step, json_number_value(v)}));
}

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static double median(const sample_list *all)
{
    double *v = TAKE_MANY(double, all->n);
    for (int i = 0; i < all->n; i++) v[i] = all->item[i].value;
    qsort(v, (size_t)all->n, sizeof *v, ascending);
    return all->n % 2 ? v[all->n / 2] : (v[all->n / 2 - 1] + v[all->n / 2]) / 2;
}

static void add_median(json_t *to, const char *key, const sample_list *all)
{
    if (all->n) json_object_set_new(to, key, json_real(median(all)));
}

const char *section_run(struct text *t, const char *path, json_t *out)
{
    size_t bytes;
    char *text = file_read(path, &bytes);
    if (!text) return file_read_why(errno);
    sample_list loss = {0}, norm = {0}, rate = {0}, lr = {0}, took = {0}, predicted = {0};
    int number = 0;
    for (char *line = text, *end; line < text + bytes; line = end) {
        char *stop = memchr(line, '\n', (size_t)(text + bytes - line));
        end = stop ? stop + 1 : text + bytes;
        number++;
        json_error_t error;
        json_t *row = json_loadb(line, (size_t)(end - line), 0, &error);
        const json_t *step = json_object_get(row, "step");
        if (!stop && !row) break; /* a run that was ended in the middle of its last line */
        if (!json_is_number(step))
            return text_format("line %d is no metrics of a step: an object with \"step\"", number);
        double at = json_number_value(step);
        take_sample(&loss, row, at, "loss");
        take_sample(&norm, row, at, "grad_norm");
        take_sample(&lr, row, at, "lr");
        take_sample(&rate, row, at, "tokens_per_second");
        take_sample(&took, row, at, "step_seconds");
        take_sample(&predicted, row, at, "predicted_step_seconds");
    }
    if (!loss.n) return "it has no loss of any step";
    text_add(t, "<section>\n<h2>The run</h2>\n<p class=\"soft\">%s: %s steps in the file.",
             html_text(path), text_count(loss.n));
    if (took.n) text_add(t, " A step took %s (median).", html_seconds(median(&took)));
    if (took.n && predicted.n)
        text_add(t, " Predicted: %s (%+.1f %%).", html_seconds(median(&predicted)),
                 100 * (median(&predicted) / median(&took) - 1));
    text_add(t, "</p>\n");
    run_chart(t, "Loss", &loss, NULL, false, label_plain);
    run_chart(t, predicted.n ? "Time of a step; dashed: predicted" : "Time of a step", &took,
              &predicted, true, label_seconds);
    run_chart(t, "Tokens per second", &rate, NULL, true, label_count);
    run_chart(t, "Gradient norm", &norm, NULL, true, label_plain);
    run_chart(t, "Learning rate", &lr, NULL, true, label_plain);
    text_add(t, "</section>\n");
    if (!out) return NULL;
    json_t *o = json_pack("{s:I, s:f, s:f}", "steps", (json_int_t)loss.n, "first_loss",
                          loss.item[0].value, "last_loss", loss.item[loss.n - 1].value);
    add_median(o, "step_seconds", &took);
    add_median(o, "predicted_step_seconds", &predicted);
    add_median(o, "tokens_per_second", &rate);
    json_object_set_new(out, "run", o);
    return NULL;
}
