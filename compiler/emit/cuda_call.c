/* One function of kernels.cu and the launch of it in launch.c, which must agree about the grid, the
 * arguments and the name. */
#include "emit/cuda.h"

#include <string.h>

static bool is_tensor(const struct cuda_kernel *c, int argument)
{
    for (size_t i = 0; i < COUNT_OF(c->tensor); i++)
        if (c->tensor[i].box && c->tensor[i].argument == argument) return true;
    return false;
}

const char *cuda_begin(struct cuda_kernel *c, const char *ending, int threads, bool works)
{
    const char *name = text_format("%s%s%s", c->name, *ending ? "_" : "", ending);
    for (int i = 0; i < c->function.n; i++)
        if (!strcmp(c->function.item[i], name))
            bug("kernel %s has two functions %s", c->kernel->kernel->name, name);
    PUSH(&c->function, name);
    const char *opening =
        c->resident ? text_format("KERNEL_RESIDENT(%d, %d) f_%s(", threads, c->resident, name)
                    : text_format("KERNEL(%d) f_%s(", threads, name);
    c->resident = 0;
    struct emit_list parameters = {0};
    for (int i = 0; i < c->n_argument; i++) {
        const char *called = emit_argument_name(&c->argument[i], i, c->canonical);
        PUSH(&parameters.item,
             is_tensor(c, i)
                 ? text_format(CUDA_TENSOR_MAP " %s", called)
                 : text_format("%s *__restrict__ %s", emit_argument_type(&c->argument[i]), called));
    }
    static const char *const range[] = {"int64_t from", "int64_t count", "float decay"};
    for (size_t i = 0; i < COUNT_OF(range) && c->walks; i++) PUSH(&parameters.item, range[i]);
    if (c->scales) PUSH(&parameters.item, "float lr_scale");
    if (c->balances) PUSH(&parameters.item, "float balance_mean");
    if (c->balances) PUSH(&parameters.item, "float balance_rate");
    if (works) PUSH(&parameters.item, "void *work");
    emit_list(&c->functions, opening, &parameters, ")\n{\n");
    return text_format("FUNCTION_%s", name);
}

void cuda_end(struct cuda_kernel *c) { text_add(&c->functions, "}\n"); }

const char *cuda_launch_arguments(const struct cuda_kernel *c, bool works)
{
    struct text t = {0};
    text_add(&t, "(void *[]){");
    for (int i = 0; i < c->n_argument; i++) text_add(&t, "%s(void *)&p[%d]", i ? ", " : "", i);
    if (c->walks) text_add(&t, ", (void *)&s->from, (void *)&s->count, &(float){(float)s->decay}");
    if (c->scales) text_add(&t, ", &(float){(float)s->lr_scale}");
    if (c->balances)
        text_add(&t, ", &(float){(float)s->balance_mean}, &(float){(float)s->balance_rate}");
    if (works) text_add(&t, "%s&(void *){workspace()}", c->n_argument ? ", " : "");
    text_add(&t, "}");
    return t.bytes;
}

const char *cuda_tensors(const struct cuda_tensor tensor[CUDA_TENSORS])
{
    struct text t = {0};
    if (!tensor[0].box) return "";
    for (int i = 0; i < CUDA_TENSORS && tensor[i].box; i++)
        text_add(&t, "%s{%d, %ld, %ld, %ld, %d}", i ? ", " : ", {", tensor[i].argument,
                 tensor[i].planes, tensor[i].lines, tensor[i].elements, tensor[i].box);
    text_add(&t, "}");
    return t.bytes;
}

void cuda_wgmma(struct cuda_kernel *c, const char *statement, const char *x, const char *y,
                int threads, int64_t shared_bytes, bool works)
{
    const char *function = cuda_begin(c, "wgmma", threads, works);
    text_add(&c->functions, "#ifdef HAS_WGMMA\n    %s;\n#endif\n", statement);
    cuda_end(c);
    text_add(&c->call, "    if (launch_wgmma()) {\n    ");
    cuda_launch(c, function, x, y, "1", threads, shared_bytes, works);
    text_add(&c->call, "        return;\n    }\n");
}

void cuda_launch(struct cuda_kernel *c, const char *function, const char *x, const char *y,
                 const char *z, int threads, int64_t shared_bytes, bool works)
{
    text_add(&c->call, "    launch(&(struct shot){%s, %s, %s, %s, %d, %ld%s},\n           %s);\n",
             function, x, y, z, threads, shared_bytes, cuda_tensors(c->tensor),
             cuda_launch_arguments(c, works));
    memset(c->tensor, 0, sizeof c->tensor);
}
