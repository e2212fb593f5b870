/* The door to cuda text: kernels.cu with the functions of all kernels, launch.c with the host
 * functions that launch them and the records that schedule.c runs. Both come from one walk over the
 * kernels, so their order and numbers agree. As on cpu, kernels that do the same to the same shapes
 * share their functions: texts are compared with every name replaced by a number. */
#include "base/escape.h"
#include "emit/cuda.h"

#include <string.h>

/* ── one function and its launch ─────────────────────────────────────────────── */
const char *cuda_begin(struct cuda_kernel *c, const char *ending, int threads, bool works)
{
    const char *name = text_format("%s%s%s", c->name, *ending ? "_" : "", ending);
    for (int i = 0; i < c->function.n; i++)
        if (!strcmp(c->function.item[i], name))
            bug("kernel %s has two functions %s", c->kernel->kernel->name, name);
    PUSH(&c->function, name);
    if (c->resident)
        text_add(&c->functions, "KERNEL_RESIDENT(%d, %d) f_%s(", threads, c->resident, name);
    else
        text_add(&c->functions, "KERNEL(%d) f_%s(", threads, name);
    c->resident = 0;
    for (int i = 0; i < c->n_argument; i++)
        text_add(&c->functions, "%s%s *__restrict__ %s", i ? ", " : "",
                 emit_argument_type(&c->argument[i]),
                 emit_argument_name(&c->argument[i], i, c->canonical));
    if (c->walks) text_add(&c->functions, ", int64_t from, int64_t count, float decay");
    if (works) text_add(&c->functions, "%svoid *work", c->n_argument ? ", " : "");
    text_add(&c->functions, ")\n{\n");
    return text_format("FUNCTION_%s", name);
}

void cuda_end(struct cuda_kernel *c) { text_add(&c->functions, "}\n"); }

const char *cuda_launch_arguments(const struct cuda_kernel *c, bool works)
{
    struct text t = {0};
    text_add(&t, "(void *[]){");
    for (int i = 0; i < c->n_argument; i++) text_add(&t, "%s(void *)&p[%d]", i ? ", " : "", i);
    if (c->walks) text_add(&t, ", (void *)&s->from, (void *)&s->count, &(float){(float)s->decay}");
    if (works) text_add(&t, "%s&(void *){workspace()}", c->n_argument ? ", " : "");
    text_add(&t, "}");
    return t.bytes;
}

void cuda_launch(struct cuda_kernel *c, const char *function, const char *x, const char *y,
                 const char *z, int threads, int64_t shared_bytes, bool works)
{
    text_add(&c->call, "    launch(&(struct shot){%s, %s, %s, %s, %d, %ld},\n           %s);\n",
             function, x, y, z, threads, shared_bytes, cuda_launch_arguments(c, works));
}

/* ── all of them ─────────────────────────────────────────────────────────────── */
static struct cuda_kernel write_kernel(const struct emit *e, const struct emit_kernel *k,
                                       const char *name, bool canonical)
{
    struct cuda_kernel c = {
        .emit = e, .kernel = k, .name = name, .canonical = canonical, .walks = emit_walks_shard(k)};
    c.n_argument = emit_arguments(e, k, &c.argument);
    if (emit_core_op(k) == OP_COUNT)
        emit_cuda_fused(&c);
    else
        emit_cuda_core(&c);
    return c;
}

const char *const *emit_cuda_headers(void)
{
    static const char *const header[] = {"op_math.h", "scalar.h", NULL};
    return header;
}

static const char *const *templates_of(const struct emit *e)
{
    VECTOR(const char *) file = {0};
    PUSH(&file, "cuda/machine.cuh");
    PUSH(&file, "cuda/row.cuh");
    PUSH(&file, "cuda/runtime.cuh");
    for (int i = 0; i < e->kernel.n; i++) {
        enum op op = emit_core_op(&e->kernel.item[i]);
        const char *name = op == OP_COUNT ? NULL : emit_cuda_core_template(op);
        bool known = !name;
        for (int k = 0; k < file.n && !known; k++) known = !strcmp(file.item[k], name);
        if (!known) PUSH(&file, name);
    }
    PUSH(&file, NULL);
    return file.item;
}

const char *const *emit_cuda_templates(const struct graph *g) { return templates_of(emit_open(g)); }

struct texts {
    struct text functions, calls;
    VECTOR(const char *) function;
};

static bool any_known(const struct texts *t, const struct cuda_kernel *c)
{
    for (int i = 0; i < c->function.n; i++)
        for (int j = 0; j < t->function.n; j++)
            if (!strcmp(t->function.item[j], c->function.item[i])) return true;
    return false;
}

static struct texts write_all(const struct emit *e)
{
    struct texts t = {0};
    struct {
        const char *body, *name;
    } *done = TAKE_MANY(__typeof__(*done), e->kernel.n + 1);
    int n = 0;
    for (int i = 0; i < e->kernel.n; i++) {
        const struct emit_kernel *k = &e->kernel.item[i];
        const char *name = k->kernel->name;
        struct cuda_kernel plain = write_kernel(e, k, "", true);
        const char *body = text_format("%s%s", plain.functions.bytes ? plain.functions.bytes : "",
                                       plain.call.bytes ? plain.call.bytes : "");
        int at = 0;
        while (at < n && strcmp(done[at].body, body)) at++;
        emit_kernel_comment(&t.calls, k);
        if (at == n) {
            struct cuda_kernel c = write_kernel(e, k, name, false);
            if (any_known(&t, &c)) /* "x_parts" is a part of kernel x and a kernel of its own */
                name = text_format("%s_k%d", name, k->kernel->number),
                c = write_kernel(e, k, name, false);
            done[n].body = body, done[n++].name = name;
            if (c.functions.length) {
                emit_kernel_comment(&t.functions, k);
                text_add(&t.functions, "%s\n", c.functions.bytes);
            }
            for (int f = 0; f < c.function.n; f++) PUSH(&t.function, c.function.item[f]);
            text_add(&t.calls,
                     "static void call_%s(void *const *p, const struct stretch *s)\n{\n%s%s}\n",
                     name,
                     c.walks        ? ""
                     : c.n_argument ? "    (void)s;\n"
                                    : "    (void)p, (void)s;\n",
                     c.call.bytes ? c.call.bytes : "");
        }
        text_add(&t.calls, "const struct kernel k_%s = {%s, call_%s, %.0f, %.0f};\n\n",
                 k->kernel->name, escape_c(k->kernel->name), done[at].name, k->kernel->flops,
                 k->kernel->bytes);
    }
    return t;
}

void emit_kernels_cu(struct text *to, const struct graph *g)
{
    struct emit *e = emit_open(g);
    text_add(to, "/* The kernels: fused loops over rows and columns, and calls of templates/cuda. "
                 "Generated by planc; the same plan gives the same bytes. */\n");
    const char *const *template = templates_of(e);
    text_add(to, "#include \"%s\"\n", *template ++);
    for (const char *const *h = emit_cuda_headers(); *h; h++) text_add(to, "#include \"%s\"\n", *h);
    for (; *template; template ++) text_add(to, "#include \"%s\"\n", *template);
    struct texts t = write_all(e);
    text_add(to, "\n%s", t.functions.length ? t.functions.bytes : "");
}

void emit_launch_c(struct text *to, const struct graph *g)
{
    struct texts t = write_all(emit_open(g));
    text_add(to, "/* How the kernels of kernels.cu are launched, and their records. Generated by "
                 "planc; the same plan gives the same bytes. */\n");
    text_add(to, "#include \"kernels.h\"\n\n#include \"launch.h\"\n\n");
    if (t.function.n) {
        text_add(to, "enum {\n");
        for (int i = 0; i < t.function.n; i++)
            text_add(to, "    FUNCTION_%s,\n", t.function.item[i]);
        text_add(to, "};\n");
    }
    text_add(to, "const char *const launch_function[] = {\n");
    for (int i = 0; i < t.function.n; i++) text_add(to, "    \"f_%s\",\n", t.function.item[i]);
    text_add(to, "    0};\nconst int launch_functions = %d;\n\n%s", t.function.n,
             t.calls.length ? t.calls.bytes : "");
}
