/* See machine.h. */
#define _GNU_SOURCE
#include "machine.h"
#include "fibers.h"
#include "interpret.h"
#include "passes/workspace.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

enum { GUARD = 256 };
/* The beginning of runtime/shared/device.h's struct kernel; that header's names are those of the
 * compiler too. */
struct compiled {
    const char *name;
    void (*call)(void *const *address, const void *stretch);
};

static bool on_fibers(void)
{
    return getenv("KERNELS_ON") && !strcmp(getenv("KERNELS_ON"), "fibers");
}

enum device_kind machine_device(void) { return on_fibers() ? DEVICE_CUDA : DEVICE_CPU; }

static bool run_command(const char *name, const char *command)
{
    if (!system(command)) return true;
    printf("FAIL %s: this does not compile: %s\n", name, command);
    return false;
}

static void *loaded(const char *name, const char *path)
{
    void *object = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!object) printf("FAIL %s: %s\n", name, dlerror());
    return object;
}

/* kernels.so from kernels.c, or from kernels.cu and launch.c. */
static void *open_cpu(const struct graph *g, const char *folder, const char *name, const char *root)
{
    struct text c = {0};
    emit_kernels_c(&c, g, EMIT_CPU);
    if (!file_write(text_format("%s/kernels.c", folder), c.bytes, c.length)) return NULL;
    bool made = getenv("KEEP_KERNELS"); /* by the run before, from the same text */
    const char *sanitize = getenv("SANITIZE_FLAGS") ? getenv("SANITIZE_FLAGS") : "";
    if (!made &&
        !run_command(
            name,
            text_format("cc %s %s -D_DEFAULT_SOURCE -shared -fPIC -I %s -I "
                        "%s/runtime/shared -I %s/runtime -I %s/templates %s/kernels.c "
                        "%s/runtime/cpu/gemm_dnnl.c %s/runtime/cpu/gemm_bf16.c "
                        "%s/runtime/cpu/gemm_f32.c %s/runtime/cpu/gemm_tiles.c -o %s/kernels.so "
                        "-ldnnl -lgomp -lm",
                        EMIT_KERNEL_FLAGS, sanitize, folder, root, root, root, folder, root, root,
                        root, root, folder)))
        return NULL;
    return loaded(name, text_format("%s/kernels.so", folder));
}

static void *open_cuda(const struct graph *g, const char *folder, const char *name,
                       const char *root)
{
    struct text cu = {0}, launch = {0};
    emit_kernels_cu(&cu, g);
    emit_launch_c(&launch, g);
    if (!file_write(text_format("%s/kernels.cu", folder), cu.bytes, cu.length) ||
        !file_write(text_format("%s/launch.c", folder), launch.bytes, launch.length))
        return NULL;
    if (!run_command(name, text_format("%s/tests/cuda_on_cpu/module.sh %s/kernels.cu %s/module.so "
                                       "-I%s/templates -I%s/runtime/shared",
                                       root, folder, folder, root, root)))
        return NULL;
    if (!run_command(name, text_format("cc -std=c17 -O1 -shared -fPIC -I %s -I %s/runtime/shared "
                                       "%s/launch.c -o %s/kernels.so",
                                       folder, root, folder, folder)))
        return NULL;
    void *object = loaded(name, text_format("%s/kernels.so", folder)),
         *module = loaded(name, text_format("%s/module.so", folder));
    return object && module && fibers_open(module, object, workspace_bytes(g)) ? object : NULL;
}

struct machine *machine_open(const struct graph *g, const char *directory, const char *name,
                             const char *root)
{
    struct text h = {0};
    emit_kernels_h(&h, g);
    const char *folder = text_format("%s/%s", directory, name);
    if (!run_command(name, text_format("mkdir -p %s", folder)) ||
        !file_write(text_format("%s/kernels.h", folder), h.bytes, h.length))
        return NULL;
    struct machine *m = TAKE(struct machine);
    m->graph = g;
    m->emit = emit_open(g);
    m->object = on_fibers() ? open_cuda(g, folder, name, root) : open_cpu(g, folder, name, root);
    return m->object ? m : NULL;
}

void machine_close(struct machine *m)
{
    for (int i = 0; i < m->place.n; i++) free(m->place.item[i]->bytes - GUARD);
    dlclose(m->object);
}

struct place *machine_place(struct machine *m, const char *name, enum element type, int64_t n)
{
    for (int i = 0; i < m->place.n; i++)
        if (!strcmp(m->place.item[i]->name, name)) return m->place.item[i];
    struct place *p = TAKE(struct place);
    size_t bytes = (size_t)(n * element_bytes(type));
    unsigned char *all = aligned_alloc(64, (bytes + 2 * GUARD + 63) / 64 * 64);
    if (!all) bug("no memory for %s", name);
    memset(all, 0xa5, bytes + 2 * GUARD);
    *p = (struct place){name, type, n, all + GUARD};
    PUSH(&m->place, p);
    return p;
}

void machine_put(struct machine *m, const char *name, enum element type, int64_t n, const double *x)
{
    struct place *p = machine_place(m, name, type, n);
    for (int64_t i = 0; i < n; i++) switch (type) {
        case F32: ((float *)(void *)p->bytes)[i] = (float)x[i]; break;
        case F64: ((double *)(void *)p->bytes)[i] = x[i]; break;
        case I32: ((int32_t *)(void *)p->bytes)[i] = (int32_t)x[i]; break;
        case BF16: {
            float f = (float)as_stored(BF16, x[i]);
            uint32_t bits;
            memcpy(&bits, &f, 4);
            ((uint16_t *)(void *)p->bytes)[i] = (uint16_t)(bits >> 16);
            break;
        }
        }
}

double machine_get(const struct place *p, int64_t i)
{
    switch (p->type) {
    case F32: return (double)((const float *)(const void *)p->bytes)[i];
    case F64: return ((const double *)(const void *)p->bytes)[i];
    case I32: return (double)((const int32_t *)(const void *)p->bytes)[i];
    case BF16: {
        uint32_t bits = (uint32_t)((const uint16_t *)(const void *)p->bytes)[i] << 16;
        float f;
        memcpy(&f, &bits, 4);
        return (double)f;
    }
    }
    bug("element type %d", (int)p->type);
}

static void *address_of(struct machine *m, const struct argument *a)
{
    switch (a->kind) {
    case ARGUMENT_IN:
    case ARGUMENT_OUT:
        return machine_place(m, a->value->name, a->value->type, shape_count(a->value->shape))
            ->bytes;
    case ARGUMENT_STATE:
        return machine_place(m, text_format("state.%s", a->name), F32, 4096)->bytes;
    case ARGUMENT_SCALARS: return machine_place(m, "scalars", F32, 16)->bytes;
    case ARGUMENT_METRIC:
        return machine_place(m, text_format("metric.%s", a->name), F64, 256)->bytes;
    }
    bug("argument kind %d", (int)a->kind);
}

void machine_run(struct machine *m, const struct walk *shard, int n_shard)
{
    for (int i = 0; i < m->emit->kernel.n; i++) {
        const struct emit_kernel *k = &m->emit->kernel.item[i];
        if (!k->node.n) continue;
        struct argument *argument;
        int n = emit_arguments(m->emit, k, &argument);
        void **address = TAKE_MANY(void *, n + 1);
        for (int a = 0; a < n; a++) address[a] = address_of(m, &argument[a]);
        const struct compiled *c = dlsym(m->object, text_format("k_%s", k->kernel->name));
        if (!c) bug("no kernel %s", k->kernel->name);
        bool walks = emit_walks_shard(k);
        if (!walks || k->node.item[0]->op == OP_sum_squares) c->call(address, NULL);
        for (int s = 0; s < n_shard && walks; s++) c->call(address, &shard[s]);
    }
}

const char *machine_overrun(const struct machine *m)
{
    for (int i = 0; i < m->place.n; i++) {
        const struct place *p = m->place.item[i];
        int64_t bytes = p->n * element_bytes(p->type);
        for (int k = 0; k < GUARD; k++)
            if (p->bytes[-1 - k] != 0xa5 || p->bytes[bytes + k] != 0xa5) return p->name;
    }
    if (fibers_overrun()) return "workspace";
    return NULL;
}
