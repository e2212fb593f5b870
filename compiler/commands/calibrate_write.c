/* A cluster as a file for --cluster: every key that it has, its efficiencies and its grids. */
#include "commands/calibrate.h"

#include <string.h>

static const char *const orders[] = {"any", "nn", "nt", "tn", "tt"};

static void add_quoted(struct text *to, const char *key, const char *words)
{
    if (!words) return;
    text_add(to, ";  %s = \"", key);
    for (const char *s = words; *s; s++)
        if (*s != '"' && *s != '\\' && (unsigned char)*s >= ' ') text_add(to, "%c", *s);
    text_add(to, "\"");
}

static void add_from(struct text *to, const char *indent, const struct provenance *p)
{
    static const char *const basis[] = {[BASIS_MEASURED] = "measured",
                                        [BASIS_PUBLISHED] = "published",
                                        [BASIS_ASSUMED] = "assumed"};
    text_add(to, "%sspread = %s;  basis = %s", indent, text_number(p->spread), basis[p->basis]);
    add_quoted(to, "date", p->date);
    add_quoted(to, "source", p->source);
}

static void add_labels(struct text *to, const char *what, const char *class, const char *engine,
                       int type, const char *op)
{
    text_add(to, "    %s %s %s%s%s%s%s {", what, class, engine, type < 0 ? "" : " ",
             type < 0      ? ""
             : type == F32 ? "fp32"
                           : "bf16",
             op ? " " : "", op ? op : "");
}

static void add_list(struct text *to, const char *key, const double *x, int n)
{
    text_add(to, "        %s = [", key);
    int column = 0;
    for (int i = 0; i < n; i++) {
        const char *number = text_format("%.9g", x[i]);
        if (column + (int)strlen(number) > 76) text_add(to, "\n            "), column = 0;
        text_add(to, "%s%s", number, i + 1 < n ? ", " : "]\n");
        column += (int)strlen(number) + 2;
    }
}

static void add_grid(struct text *to, const struct grid *g)
{
    int count = 1;
    const char *const *axis = grid_axis_names(g->class);
    add_labels(to, "grid", g->class, g->engine, g->type, g->op);
    if (g->order != ORDER_ANY) text_add(to, " order = %s;", orders[g->order]);
    if (g->ranks > 1) text_add(to, " ranks = %ld", g->ranks);
    text_add(to, "\n");
    for (int a = 0; a < g->axes; a++) {
        add_list(to, axis[a], g->axis[a], g->n[a]);
        count *= g->n[a];
    }
    add_list(to, grid_unit_name(g->unit), g->value, count);
    add_from(to, "        ", &g->from);
    text_add(to, "\n    }\n");
}

static void add_efficiency(struct text *to, const struct efficiency *e)
{
    add_labels(to, "efficiency", e->class, e->engine, e->type, NULL);
    text_add(to, " value = %s;  half = %s;  tile = [%ld, %ld];  split = %s", text_number(e->value),
             text_number(e->half), e->tile[0], e->tile[1], e->split ? "on" : "off");
    if (e->order != ORDER_ANY) text_add(to, ";  order = %s", orders[e->order]);
    if (e->width) text_add(to, ";  width = %ld", e->width);
    add_from(to, "\n        ", &e->from);
    text_add(to, "\n    }\n");
}

static const char *rate_text(double x, const char *unit)
{
    return text_format("%s%s", text_number(x / 1e9), unit);
}
static const char *time_us(double seconds)
{
    return text_format("%sus", text_number(seconds * 1e6));
}

static void add_link(struct text *to, const char *name, const struct link *l)
{
    if (!(l->bandwidth > 0)) return;
    text_add(to, "    link %s {\n        bandwidth = %s;  latency = %s;  base = %s", name,
             rate_text(l->bandwidth, "GB/s"), time_us(l->latency), time_us(l->base));
    add_from(to, "\n        ", &l->from);
    text_add(to, "\n    }\n");
}

static void add_device(struct text *to, const struct cluster *c)
{
    text_add(to, "    device \"%s\" {\n        kind = %s",
             c->device_name ? c->device_name : "device", c->kind == DEVICE_CUDA ? "cuda" : "cpu");
    if (c->arch) text_add(to, ";  arch = \"%s\"", c->arch);
    if (c->multiprocessors) text_add(to, ";  multiprocessors = %ld", c->multiprocessors);
    if (c->memory_bytes && c->kind == DEVICE_CUDA)
        text_add(to, "\n        memory = %ldB", c->memory_bytes);
    text_add(to, "\n        outside = %ldB", c->outside_bytes);
    if (c->bandwidth > 0) text_add(to, "\n        bandwidth = %s", rate_text(c->bandwidth, "GB/s"));
    if (c->flops_bf16 > 0 || c->flops_fp32 > 0) {
        text_add(to, "\n        flops {");
        if (c->flops_bf16 > 0) text_add(to, " bf16 = %s", rate_text(c->flops_bf16, "GFLOP/s"));
        if (c->flops_fp32 > 0)
            text_add(to, "%s fp32 = %s", c->flops_bf16 > 0 ? ";" : "",
                     rate_text(c->flops_fp32, "GFLOP/s"));
        text_add(to, " }");
    }
    text_add(to, "\n    }\n");
}

bool cluster_write(const char *path, const struct cluster *c, const struct rates *r)
{
    struct text t = {0};
    text_add(&t,
             "# Written by planc calibrate on %s. `--cluster` with this file takes it in the place "
             "of a plan's cluster.\nrates measured_rates {\n",
             date_today());
    for (int i = 0; i < r->efficiency.n; i++) add_efficiency(&t, &r->efficiency.item[i]);
    for (int i = 0; i < r->grid.n; i++) add_grid(&t, &r->grid.item[i]);
    text_add(&t, "}\n\ncluster %s {\n", c->name ? c->name : "measured");
    if (c->elastic)
        text_add(&t, "    elastic = on\n");
    else
        text_add(&t, "    nodes = %ld;  devices_per_node = %ld\n", c->nodes, c->devices_per_node);
    if (c->host_memory) text_add(&t, "    host_memory = %ldB\n", c->host_memory);
    add_device(&t, c);
    text_add(&t, "    rates = [measured_rates]\n");
    if (c->cores) text_add(&t, "    cores = %ld\n", c->cores);
    text_add(&t, "    device_spread = %s;  jitter = %s;  imbalance = %s\n",
             text_number(c->device_spread), text_number(c->jitter), text_number(c->imbalance));
    text_add(&t, "    host {\n        launch = %s;  step = %s;  issue = %s",
             time_us(c->host.launch), time_us(c->host.step), time_us(c->host.issue));
    add_from(&t, "\n        ", &c->host.from);
    text_add(&t, "\n    }\n    contention {\n        ");
    if (c->kind == DEVICE_CUDA)
        text_add(&t, "multiprocessors = %ld;  traffic = %s%s", c->contention.multiprocessors,
                 text_number(c->contention.traffic),
                 c->contention.block > 0
                     ? text_format(";  block = %s", rate_text(c->contention.block, "GB/s"))
                     : "");
    else
        text_add(&t, "core = %s", text_number(c->contention.core));
    text_add(&t, ";  link = %s", text_number(c->contention.link));
    add_from(&t, "\n        ", &c->contention.from);
    text_add(&t, "\n    }\n");
    add_link(&t, "node", &c->link_node);
    add_link(&t, "network", &c->link_network);
    text_add(&t, "}\n");
    return file_write(path, t.bytes, t.length);
}
