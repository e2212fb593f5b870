/* Writes kernels.cu with the functions of all kernels, and launch.c with the host functions that
 * launch them and the records that schedule.c runs. Both come from one walk over the kernels, so
 * their order and numbers agree. As on cpu, kernels that do the same to the same shapes share their
 * functions: texts are compared with every name replaced by a number. */
#include "base/escape.h"
#include "emit/cuda.h"

#include <string.h>

static struct cuda_kernel write_kernel(const struct emit *e, const struct emit_kernel *k,
                                       const char *name, bool canonical)
{
    struct cuda_kernel c = {.emit = e,
                            .kernel = k,
                            .name = name,
                            .canonical = canonical,
                            .walks = emit_walks_shard(k),
                            .scales = emit_reads(k, OP_lr_scale) != NULL,
                            .balances = emit_reads(k, OP_balance_mean) != NULL};
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

typedef VECTOR(const char *) file_list;
static void need(file_list *all, const char *name)
{
    for (int i = 0; i < all->n; i++)
        if (!strcmp(all->item[i], name)) return;
    PUSH(all, name);
}

static const char *const *templates_of(const struct emit *e)
{
    file_list file = {0};
    need(&file, "cuda/machine.cuh");
    need(&file, "cuda/row.cuh");
    need(&file, "cuda/runtime.cuh");
    for (int i = 0; i < e->kernel.n; i++) {
        enum op op = emit_core_op(&e->kernel.item[i]);
        const char *name = op == OP_COUNT ? NULL : emit_cuda_core_template(op);
        if (name) need(&file, name);
        if (name && e->graph->facts.wgmma && cuda_has_wgmma_form(op))
            need(&file, text_format("%.*s_wgmma.cuh", (int)strlen(name) - 4, name));
    }
    PUSH(&file, NULL);
    return file.item;
}

const char *const *emit_cuda_templates(const struct graph *g) { return templates_of(emit_open(g)); }

struct texts {
    struct text functions, calls;
    VECTOR(const char *) function, offer;
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
        const char *body = text_format("%s%s%s", plain.functions.bytes ? plain.functions.bytes : "",
                                       plain.offers.bytes ? plain.offers.bytes : "",
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
            for (int o = 0; o < c.offer.n; o++) PUSH(&t.offer, c.offer.item[o]);
            text_add(&t.calls, "%s", c.offers.bytes ? c.offers.bytes : "");
            text_add(&t.calls,
                     "static void call_%s(void *const *p, const struct stretch *s)\n{\n%s%s}\n",
                     name,
                     c.walks        ? ""
                     : c.n_argument ? "    (void)s;\n"
                                    : "    (void)p, (void)s;\n",
                     c.call.bytes ? c.call.bytes : "");
        }
        text_add(&t.calls, "const struct kernel k_%s = {%s, call_%s, %.0f, %.0f, \"%s\"};\n\n",
                 k->kernel->name, escape_c(k->kernel->name), done[at].name, k->kernel->flops,
                 k->kernel->bytes, kernel_class_name(k->kernel));
    }
    return t;
}

void emit_kernels_cu(struct text *to, const struct graph *g)
{
    struct emit *e = emit_open(g);
    text_add(to, "/* The kernels: fused loops over rows and columns, and calls of templates/cuda.\n"
                 " * Generated by planc; the same plan gives the same bytes. */\n");
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
    text_add(to, "/* How the kernels of kernels.cu are launched, and their records.\n"
                 " * Generated by planc; the same plan gives the same bytes. */\n");
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
    text_add(to, "const struct offer launch_offer[] = {\n");
    for (int i = 0; i < t.offer.n; i++) text_add(to, "    {%s},\n", t.offer.item[i]);
    text_add(to, "    {0, 0}};\nconst int launch_offers = %d;\n", t.offer.n);
}
