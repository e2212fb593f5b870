/* `planc memory`: the memory of one device: what is live at the peak, once by kind with the buffers
 * of each and once by line of the plan, then the next fullest steps, and on demand the first step
 * above a level. The rows are those of the layout, so they add up to the allocation; small rows are
 * summed. */
#include "base/escape.h"
#include "passes/pipeline.h"
#include "commands/command.h"
#include "analysis/ledger.h"

#include <stdlib.h>
#include <string.h>

enum { WIDTH = 12, INSTANTS = 6 };

static const char *place_text(const char *file, int line)
{
    return file ? text_format("%s:%d", file, line) : "";
}

/* Rows below a thousandth of all are one row. */
static void print_holdings(const struct term *t, int64_t small)
{
    int64_t rest = 0;
    int n = 0;
    for (int i = 0; i < t->holding.n; i++) {
        const struct holding *h = &t->holding.item[i];
        if (h->bytes < small && t->holding.n > 1) {
            rest += h->bytes, n++;
            continue;
        }
        const char *place = place_text(h->file, h->line);
        printf("      %*s  %-16s %s  (steps %d to %d%s%s)\n", WIDTH, text_bytes(h->bytes), h->name,
               h->formula, h->from, h->to, *place ? ", " : "", place);
    }
    if (n) printf("      %*s  %d smaller\n", WIDTH, text_bytes(rest), n);
}

static int64_t sum_of(const term_list *terms)
{
    int64_t all = 0;
    for (int i = 0; i < terms->n; i++) all += terms->item[i].bytes;
    return all;
}

static void print_kinds(const term_list *terms)
{
    int64_t all = sum_of(terms);
    for (int i = 0; i < terms->n; i++) {
        const struct term *t = &terms->item[i];
        printf("    %*s  %5.1f %%  %-14s %s\n", WIDTH, text_bytes(t->bytes),
               100 * (double)t->bytes / (double)all, t->name,
               t->holding.n > 1
                   ? ""
                   : text_format("%s  (%s)", t->formula, place_text(t->file, t->line)));
        if (t->holding.n > 1) print_holdings(t, all / 1000);
    }
    printf("    %*s  100.0 %%\n", WIDTH, text_bytes(all));
}

/* ── by line ─────────────────────────────────────────────────────────────────── */
struct line {
    const char *file;
    int number;
    int64_t bytes;
    const char *kinds;
};
typedef VECTOR(struct line) line_list;

static int larger_first(const void *a, const void *b)
{
    const struct line *x = a, *y = b;
    if (x->bytes != y->bytes) return x->bytes > y->bytes ? -1 : 1;
    int by_file = strcmp(x->file ? x->file : "", y->file ? y->file : "");
    return by_file ? by_file : x->number - y->number;
}

static void add_line(line_list *all, const char *file, int number, int64_t bytes, const char *kind)
{
    int k = 0;
    while (k < all->n && (all->item[k].number != number ||
                          strcmp(all->item[k].file ? all->item[k].file : "", file ? file : "")))
        k++;
    if (k == all->n) PUSH(all, ((struct line){file, number, 0, kind}));
    all->item[k].bytes += bytes;
    if (!strstr(all->item[k].kinds, kind))
        all->item[k].kinds = text_format("%s, %s", all->item[k].kinds, kind);
}

static line_list lines_of(const term_list *terms)
{
    line_list all = {0};
    for (int i = 0; i < terms->n; i++) {
        const struct term *t = &terms->item[i];
        for (int k = 0; k < t->holding.n; k++) {
            const struct holding *h = &t->holding.item[k];
            add_line(&all, h->file, h->line, h->bytes, h->file ? t->name : h->name);
        }
        if (!t->holding.n) add_line(&all, t->file, t->line, t->bytes, t->name);
    }
    qsort(all.item, (size_t)all.n, sizeof *all.item, larger_first);
    return all;
}

static void print_lines(const struct plan *p, const term_list *terms)
{
    line_list all = lines_of(terms);
    int64_t small = sum_of(terms) / 1000, rest = 0;
    int n = 0;
    for (int i = 0; i < all.n; i++) {
        const struct line *l = &all.item[i];
        if (l->bytes < small) {
            rest += l->bytes, n++;
            continue;
        }
        const char *text = formula_line(p, l->file, l->number);
        printf("    %*s  %s%s%s\n", WIDTH, text_bytes(l->bytes),
               l->file ? text_format("%-26s ", place_text(l->file, l->number)) : "(no line) ",
               l->kinds, text ? text_format(":  %s", text) : "");
    }
    if (n) printf("    %*s  %d smaller\n", WIDTH, text_bytes(rest), n);
}

/* ── instants ────────────────────────────────────────────────────────────────── */
static const char *deed_text(const struct graph *g, int step)
{
    const char *file;
    int line;
    const char *deed = ledger_deed(g, step, &file, &line);
    return text_format("%s: %s%s", ledger_place(g, step), deed,
                       file ? text_format("  (%s)", place_text(file, line)) : "");
}

static json_t *instant_json(const struct ledger *l, const struct graph *g, int step)
{
    const char *file;
    int line;
    json_t *o = json_pack("{s:i, s:s, s:s, s:I}", "step", step, "at", ledger_place(g, step),
                          "doing", ledger_deed(g, step, &file, &line), "bytes",
                          (json_int_t)(ledger_live(l, step) + l->outside_bytes));
    if (file)
        json_object_set_new(o, "file", json_string(utf8_text(file))),
            json_object_set_new(o, "line", json_integer(line));
    return o;
}

static void print_instants(const struct ledger *l, const struct graph *g)
{
    struct instants all = ledger_instants(l);
    for (int i = 0; i < all.step.n && i < INSTANTS; i++)
        printf("    %*s  %s\n", WIDTH,
               text_bytes(ledger_live(l, all.step.item[i]) + l->outside_bytes),
               deed_text(g, all.step.item[i]));
    if (all.step.n > INSTANTS)
        printf("    %*s  and %d lower ones\n", WIDTH, "", all.step.n - INSTANTS);
}

static void print_level(const struct ledger *l, const struct plan *p, const struct graph *g,
                        int64_t level)
{
    int step = ledger_first_above(l, level);
    if (step < 0) {
        printf("\n  never above %s: the peak is %s\n", text_bytes(level),
               text_bytes(l->fullest_bytes + l->outside_bytes));
        return;
    }
    printf("\n  first above %s, with %s: %s\n", text_bytes(level),
           text_bytes(ledger_live(l, step) + l->outside_bytes), deed_text(g, step));
    term_list terms = ledger_at(l, p, g, step);
    print_kinds(&terms);
}

static double part(int64_t a, int64_t b) { return b ? (double)a / (double)b : 1; }

static void print_arena(const struct ledger *l)
{
    printf("    %*s  in all; the last %s are segment wire, for collectives\n", WIDTH,
           text_bytes(l->arena_bytes), text_bytes(l->wire_bytes));
    printf("    %*s  live at the peak, the least that any layout needs: ratio %.4f\n", WIDTH,
           text_bytes(l->fullest_bytes), part(l->arena_bytes, l->fullest_bytes));
}

static void print_text(const char *path, const struct ledger *l, const struct plan *p,
                       const struct graph *g)
{
    printf("%s: %s, %.1f %% of what each of %s device%s offers (%s)\n", path,
           verdict_names[l->verdict], 100 * part(l->peak_bytes, l->limit_bytes),
           text_count(l->devices), l->devices == 1 ? "" : "s", ledger_device(p));
    printf("  peak        %s = arena %s + outside %s; %s offered\n", text_bytes(l->peak_bytes),
           text_bytes(l->arena_bytes), text_bytes(l->outside_bytes), text_bytes(l->limit_bytes));
    printf("  tokens      %s = local %s x sequence %s, per micro-batch\n",
           text_count(g->facts.tokens), text_count(g->facts.local), text_count(g->facts.sequence));
    printf("  1 GiB is 2^30 bytes\n");
    printf("\n  the peak, by kind, at %s\n", deed_text(g, l->peak_step));
    print_kinds(&l->term);
    printf("\n  the peak, by line\n");
    print_lines(p, &l->term);
    printf("\n  the fullest steps: outside + live bytes\n");
    print_instants(l, g);
    printf("\n  the arena\n");
    print_arena(l);
}

static json_t *lines_json(const term_list *terms)
{
    line_list all = lines_of(terms);
    json_t *list = json_array();
    for (int i = 0; i < all.n; i++) {
        json_t *o = json_pack("{s:I, s:s}", "bytes", (json_int_t)all.item[i].bytes, "kinds",
                              all.item[i].kinds);
        if (all.item[i].file)
            json_object_set_new(o, "file", json_string(utf8_text(all.item[i].file))),
                json_object_set_new(o, "line", json_integer(all.item[i].number));
        json_array_append_new(list, o);
    }
    return list;
}

static void print_json(const char *path, const struct ledger *l, const struct plan *p,
                       const struct graph *g, int64_t level)
{
    json_t *o = ledger_json(path, l, true), *list = json_array();
    struct instants all = ledger_instants(l);
    for (int i = 0; i < all.step.n; i++)
        json_array_append_new(list, instant_json(l, g, all.step.item[i]));
    json_object_set_new(o, "lines", lines_json(&l->term));
    json_object_set_new(o, "instants", list);
    int step = level >= 0 ? ledger_first_above(l, level) : -1;
    if (step >= 0) {
        term_list terms = ledger_at(l, p, g, step);
        json_t *at = instant_json(l, g, step);
        json_object_set_new(at, "terms", ledger_terms_json(&terms, true));
        json_object_set_new(o, "first_above", at);
    } else if (level >= 0)
        json_object_set_new(o, "first_above", json_null());
    printf("%s\n", json_dumps(o, JSON_INDENT(2)));
}

int command_memory(const struct arguments *a)
{
    int status;
    if (a->word.n != 1) return command_fail(EXIT_USAGE, "memory takes one plan, not %d", a->word.n);
    json_in_arena();
    static const struct option_range bytes = {
        UNIT_BYTES, 0, "a number of bytes, such as 120GiB (2^30 bytes) or 120GB (10^9)"};
    double level_bytes = -1;
    if (a->at && !option_quantity("--at", a->at, bytes, &level_bytes)) return EXIT_USAGE;
    const int64_t level = (int64_t)level_bytes;
    const struct plan *p = command_plan(a, a->word.item[0], &status);
    struct graph *g = p ? pass_lower(p) : NULL;
    if (!g) return p ? EXIT_PLAN : status;
    g = pipeline_run(g, LEVEL_MEMORY);
    if (!g) return EXIT_PLAN;
    const struct ledger *l = ledger_read(p, g);
    if (!l) return EXIT_ENVIRONMENT;
    if (a->json)
        print_json(a->word.item[0], l, p, g, level);
    else {
        print_text(a->word.item[0], l, p, g);
        if (level >= 0) print_level(l, p, g, level);
    }
    return l->verdict == EXCEEDS ? EXIT_NO_FIT : EXIT_FINE;
}
