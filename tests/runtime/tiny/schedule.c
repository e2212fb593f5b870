/* The schedule of the hand-written plan, in the manner of a generated one: layers are gathered one
 * ahead, gradient slots alternate, everything a device can do occurs. */
#include "tiny.h"

#ifdef TRACE
#define CALL(f) NULL
#else
#define CALL(f) f
void tiny_look_up(void *const *, const struct stretch *),
    tiny_shift(void *const *, const struct stretch *),
    tiny_loss(void *const *, const struct stretch *),
    tiny_table_gradient(void *const *, const struct stretch *),
    tiny_layer_gradient(void *const *, const struct stretch *),
    tiny_clear(void *const *, const struct stretch *),
    tiny_squares(void *const *, const struct stretch *),
    tiny_norm(void *const *, const struct stretch *),
    tiny_adamw(void *const *, const struct stretch *);
#endif
static const struct kernel look_up = {"look_up", CALL(tiny_look_up), 0, 0},
                           shift = {"shift", CALL(tiny_shift), 0, 0},
                           loss = {"loss", CALL(tiny_loss), 0, 0},
                           table_gradient = {"table_gradient", CALL(tiny_table_gradient), 0, 0},
                           layer_gradient = {"layer_gradient", CALL(tiny_layer_gradient), 0, 0},
                           clear = {"clear", CALL(tiny_clear), 0, 0},
                           squares = {"squares", CALL(tiny_squares), 0, 0},
                           norm = {"norm", CALL(tiny_norm), 0, 0},
                           adamw = {"adamw", CALL(tiny_adamw), 0, 0};

enum {
    TABLE_READY,
    LAYER_READY,
    TABLE_REDUCED = LAYER_READY + 2,
    LAYER_REDUCED,
    SUMMED = LAYER_REDUCED + 2,
    REPLICAS_SUMMED
};
enum { TABLE = LAYERS }; /* instance numbers: the layers are 0, 1, 2 */
#define RUN(step, k, ...) run(d, step, &k, (void *const[]){__VA_ARGS__, NULL})

static void *layer_slot(struct device *d, int i)
{
    return wire(d, LAYER_SLOT + i % 2 * UP(4 * LAYER_FLAT, 256));
}
static void *layer_sum(struct device *d, int i)
{
    return wire(d, LAYER_SUM + i % 2 * UP(4 * LAYER_FLAT, 256));
}
static void *state(struct device *d, int64_t part, int unit)
{
    return local(d,
                 part + 4 * (int64_t)(unit == TABLE ? LAYERS * LAYER_SHARD : unit * LAYER_SHARD));
}

void schedule_setup(struct device *d) { (void)d; }

void schedule_micro_batch(struct device *d, int micro)
{
    iteration(d, -1);
    load_batch(d, 1, local(d, TOKEN), local(d, TARGET), micro);
    gather(d, 2, TABLE, wire(d, TABLE_SLOT), TABLE_READY);
    gather(d, 3, 0, layer_slot(d, 0), LAYER_READY);
    await(d, 4, TABLE_READY);
    RUN(5, look_up, local(d, LOGITS), local(d, TOKEN), wire(d, TABLE_SLOT));
    for (int i = 0; i < LAYERS; i++) {
        iteration(d, i);
        if (i + 1 < LAYERS) gather(d, 3, i + 1, layer_slot(d, i + 1), LAYER_READY + (i + 1) % 2);
        await(d, 6, LAYER_READY + i % 2);
        RUN(7, shift, local(d, LOGITS), layer_slot(d, i));
    }
    iteration(d, -1);
    tap(d, 8, "logits", TYPE_F32, local(d, LOGITS), TOKENS, V);
    RUN(9, loss, local(d, LOGITS), local(d, TARGET), local(d, COLUMN), local(d, SCALARS),
        local(d, METRICS));
    await(d, 10, TABLE_REDUCED);
    RUN(10, table_gradient, wire(d, TABLE_SUM), local(d, LOGITS), local(d, TOKEN),
        local(d, COLUMN));
    reduce(d, 11, TABLE, wire(d, TABLE_SUM), local(d, STAGE), state(d, GRADIENT, TABLE), micro,
           TABLE_REDUCED);
    if (DP > 1) sum_replicas(d, 11, TABLE, state(d, GRADIENT, TABLE), micro, REPLICAS_SUMMED);
    for (int i = LAYERS - 1; i >= 0; i--) {
        iteration(d, i);
        await(d, 12, LAYER_REDUCED + i % 2);
        RUN(13, layer_gradient, layer_sum(d, i), local(d, COLUMN));
        reduce(d, 14, i, layer_sum(d, i), local(d, STAGE), state(d, GRADIENT, i), micro,
               LAYER_REDUCED + i % 2);
        if (DP > 1) sum_replicas(d, 14, i, state(d, GRADIENT, i), micro, REPLICAS_SUMMED);
    }
    iteration(d, -1);
}

void schedule_update(struct device *d)
{
    await(d, 15, LAYER_REDUCED);
    await(d, 15, LAYER_REDUCED + 1);
    if (DP > 1) await(d, 15, REPLICAS_SUMMED);
    RUN(16, clear, local(d, NORM));
    for (int u = 0; u <= TABLE; u++)
        run_shard(d, 16, &squares, u, (void *const[]){local(d, NORM), state(d, GRADIENT, u), NULL});
    sum_ranks(d, 17, "fsdp", local(d, NORM), 1, SUMMED);
    await(d, 18, SUMMED);
    RUN(19, norm, local(d, NORM), local(d, SCALARS));
    for (int u = 0; u <= TABLE; u++) {
        iteration(d, u);
        run_shard(d, 20, &adamw, u,
                  (void *const[]){state(d, MASTER, u), state(d, GRADIENT, u), state(d, MOMENT1, u),
                                  state(d, MOMENT2, u), local(d, SCALARS), NULL});
    }
    iteration(d, -1);
}
