/* A plan small enough to write its generated files by hand, so that the runtime is tested without
 * the compiler: a bigram model whose logits are table[token] + bias + for each layer shift + mix[0]
 * + mix[1] / 2. It uses every verb of device.h. Mesh and batch are given with -D. */
#ifndef TINY_H
#define TINY_H
#include "device.h"
#include "program.h"

#include <stddef.h>

#ifndef FSDP
#define FSDP 1
#endif
#ifndef DP
#define DP 1
#endif
#ifndef ACCUMULATION
#define ACCUMULATION 1
#endif
#ifndef GLOBAL
#define GLOBAL 8
#endif
#ifndef VOCABULARY
#define VOCABULARY 257
#endif
#ifndef FORMAT
#define FORMAT 1
#endif
#ifndef TIMEOUT
#define TIMEOUT 100
#endif
#ifndef COMPUTE
#define COMPUTE TYPE_F32
#endif
enum {
    V = VOCABULARY,
    LAYERS = 3,
    SEQUENCE = 19,
    LOCAL = GLOBAL / (FSDP * DP * ACCUMULATION),
    TOKENS = LOCAL * SEQUENCE
};
#define UP(x, to) (((x) + (to)-1) / (to) * (to))
enum {
    MIX_AT = UP(V, 64),
    LAYER_ELEMENTS = MIX_AT + 2 * V,
    LAYER_SHARD = UP(UP(LAYER_ELEMENTS, FSDP) / FSDP, 64),
    LAYER_FLAT = LAYER_SHARD * FSDP,
    BIAS_AT = UP(V * V, 64),
    TABLE_ELEMENTS = BIAS_AT + V,
    TABLE_SHARD = UP(UP(TABLE_ELEMENTS, FSDP) / FSDP, 64),
    TABLE_FLAT = TABLE_SHARD * FSDP,
    STATE = LAYERS * LAYER_SHARD + TABLE_SHARD,
};
/* local segment, bytes */
enum {
    MASTER = 0,
    GRADIENT = MASTER + UP(4 * STATE, 256),
    MOMENT1 = GRADIENT + UP(4 * STATE, 256),
    MOMENT2 = MOMENT1 + UP(4 * STATE, 256),
    SCALARS = MOMENT2 + UP(4 * STATE, 256),
    METRICS = SCALARS + 256,
    NORM = METRICS + 256,
    TOKEN = NORM + 256,
    TARGET = TOKEN + UP(4 * TOKENS, 256),
    LOGITS = TARGET + UP(4 * TOKENS, 256),
    COLUMN = LOGITS + UP(4 * TOKENS * V, 256),
    STAGE = COLUMN + UP(4 * V, 256),
    STAGING = STAGE + UP(4 * (TABLE_SHARD > LAYER_SHARD ? TABLE_SHARD : LAYER_SHARD), 256),
    STAGING_BYTES = 4096,
    LOCAL_BYTES = UP(STAGING + STAGING_BYTES, 4096),
};
/* wire segment */
enum {
    TABLE_SLOT = 0,
    LAYER_SLOT = UP(4 * TABLE_FLAT, 256),
    TABLE_SUM = LAYER_SLOT + 2 * UP(4 * LAYER_FLAT, 256),
    LAYER_SUM = TABLE_SUM + UP(4 * TABLE_FLAT, 256),
    WIRE_BYTES = UP(LAYER_SUM + 2 * UP(4 * LAYER_FLAT, 256), 4096)
};
#endif
