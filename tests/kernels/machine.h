/* Runs generated kernels inside the test: the text is emitted, compiled to a shared object with the
 * flags of a real build, loaded, and each kernel of a body called in order on buffers that are
 * found by the IR's names. Buffers stand between guard bytes, so a kernel that writes past its
 * result is found. */
#ifndef TEST_MACHINE_H
#define TEST_MACHINE_H

#include "emit/common.h"

struct machine {
    const struct graph *graph;
    struct emit *emit;
    void *object;
    VECTOR(struct place *) place;
};
struct place {
    const char *name;
    enum element type;
    int64_t n;
    unsigned char *bytes;
};

/* Which device the kernels are made for. */
enum device_kind machine_device(void);
/* Emits and compiles into DIRECTORY; NULL after saying why. */
struct machine *machine_open(const struct graph *g, const char *directory, const char *name,
                             const char *root);
void machine_close(struct machine *m);
struct place *machine_place(struct machine *m, const char *name, enum element type, int64_t n);
void machine_put(struct machine *m, const char *name, enum element type, int64_t n,
                 const double *x);
double machine_get(const struct place *p, int64_t i);
/* Every kernel of the graph, in order. shard: the stretches that run_shard would hand over. */
struct walk {
    int64_t from, count;
    double decay, lr_scale, balance_mean, balance_rate; /* as struct stretch of the runtime */
};
void machine_run(struct machine *m, const struct walk *shard, int n_shard);
/* NULL, or the name of a buffer that was written outside. */
const char *machine_overrun(const struct machine *m);

#endif
