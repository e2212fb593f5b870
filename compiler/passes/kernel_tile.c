/* Chooses tiles of matrix products; see kernel_tile.h. Times are estimates, in multiply-adds of a
 * multiprocessor at full speed, from the number of waves of blocks. Tiles differ in time and not in
 * sums; the parts of a product of F32 and BF16 also set the order of its sums. */
#include "passes/kernel_tile.h"

#include <stdlib.h>
#include <string.h>

enum {
    MULTIPROCESSORS = 132, /* where no cluster gives them: of an H100 or H200 */
    PLANES = 3,
    DEEP = 64,
    LEAST_DEEP = 256,
    MOST_PARTS = 32,
    START = 192
};

static const struct tile tensor_tile[] = {{"product_large", 128, 256, 256, 1, 196608, 1.0},
                                          {"product_middle", 128, 128, 128, 2, 98304, 0.85},
                                          {"product_small", 64, 64, 128, 3, 65536, 0.5}};
/* Its speed against mma.sync is a guess: no GPU has run it. */
static const struct tile wgmma_tile = {"wgmma_tile", 128, 256, 384, 1, 197728, 1.4};
static const struct tile plain_tile[] = {{"8", 128, 128, 256, 2, 0, 1.0},
                                         {"4", 64, 64, 256, 4, 0, 0.6}};

static int64_t rounded_up(int64_t n, int64_t of) { return (n + of - 1) / of; }

int64_t multiprocessors_of(const struct facts *f)
{
    return f->multiprocessors ? f->multiprocessors : MULTIPROCESSORS;
}

int64_t shared_bytes_of(const char *const *arch, int n)
{
    /* 99, 163 and 227 KiB: compute capabilities, CUDA's programming guide */
    enum { LEAST = 101376, AMPERE = 166912, HOPPER = 232448 };
    int64_t least = HOPPER;
    for (int i = 0; i < n; i++) {
        int number = atoi(arch[i] + 3), major = number / 10;
        int64_t offers = number == 80 || number == 87 ? AMPERE
                         : major >= 9 && major <= 11  ? HOPPER
                                                      : LEAST;
        if (offers < least) least = offers;
    }
    return least == HOPPER ? 0 : least;
}

bool has_wgmma(const char *const *arch, int n)
{
    for (int i = 0; i < n; i++)
        if (!strcmp(arch[i], "sm_90a")) return true;
    return false;
}

static bool fits(const struct tile *t, int64_t shared)
{
    return !shared || t->shared_bytes <= shared;
}

/* How long `blocks` take, a block one unit of its tile's area: full rounds, then what is left
 * spread out. */
static double time_of(const struct facts *f, const struct tile *t, int64_t blocks)
{
    int64_t each = multiprocessors_of(f), at_once = each * t->together;
    int64_t rounds = blocks / at_once * t->together + rounded_up(blocks % at_once, each);
    return (double)rounds * t->m * t->n / t->speed;
}

const struct tile *tile_choose(const struct facts *f, bool tensor, bool wide, int64_t count,
                               int64_t m, int64_t n)
{
    const struct tile *tile = tensor ? tensor_tile : plain_tile, *best = NULL;
    int tiles = tensor ? (int)COUNT_OF(tensor_tile) : (int)COUNT_OF(plain_tile);
    double least = 0;
    /* odd lines are copied one by one, which takes registers that only the small tile has */
    for (int i = tensor && !wide ? tiles - 1 : 0; i < tiles; i++) {
        double time =
            time_of(f, &tile[i], count * rounded_up(m, tile[i].m) * rounded_up(n, tile[i].n));
        if (fits(&tile[i], f->shared_bytes) && (!best || time < least))
            best = &tile[i], least = time;
    }
    return best;
}

/* What the driver asks of a tensor: lines of whole 16 bytes (addresses of buffers are multiples of
 * 256, and parts of a buffer have whole lines), fewer than 2^40 bytes from plane to plane,
 * coordinates of 32 bits. */
static bool copies_lines(const struct value *v, int64_t lines, int64_t elements)
{
    return v->type == BF16 && elements % 8 == 0 && elements < INT32_MAX && lines < INT32_MAX &&
           elements * 2 < ((int64_t)1 << 40) / lines;
}
static bool copies_tensor(const struct value *v)
{
    return copies_lines(v, shape_rows(v->shape), shape_columns(v->shape));
}

const struct tile *tile_wgmma(const struct facts *f, const struct tile *other,
                              const struct value *a, const struct value *b, int64_t count,
                              int64_t m, int64_t n)
{
    const struct tile *t = &wgmma_tile;
    if (!f->wgmma || !copies_tensor(a) || !copies_tensor(b)) return NULL;
    double time = time_of(f, t, count * rounded_up(m, t->m) * rounded_up(n, t->n)),
           before = time_of(f, other, count * rounded_up(m, other->m) * rounded_up(n, other->n));
    return time < before ? t : NULL;
}

int64_t wgmma_blocks(const struct facts *f, int64_t tiles)
{
    return tiles < multiprocessors_of(f) ? tiles : multiprocessors_of(f);
}

/* What `v` is the bytes of, behind views. */
static const struct value *bytes_of(const struct value *v)
{
    while (v->node && op_rows[v->node->op].class == CLASS_VIEW && v->node->op != OP_part)
        v = v->node->in[0].value;
    return v;
}

bool wgmma_attention(const struct node *n)
{
    if (n->op != OP_attention && n->op != OP_attention_grad) return false;
    bool gradient = n->op == OP_attention_grad;
    int64_t width = n->in[0].value->shape.dim[2], sequence = attr_get(n, "sequence");
    bool capped = gradient && attention_rule(n).softcap > 0; /* of 64 columns: it would spill */
    if (width != 128 && (width != 64 || capped)) return false;
    const struct value *copied[] = {n->in[0].value, n->in[1].value, n->in[2].value,
                                    gradient ? n->in[5].value : NULL};
    for (size_t i = 0; i < COUNT_OF(copied) && copied[i]; i++) {
        const struct value *v = copied[i];
        if (!copies_lines(v, sequence, v->shape.dim[1] * width) ||
            v->shape.dim[0] / sequence >= INT32_MAX)
            return false;
        for (size_t k = 0; k < i; k++) /* one argument of a kernel is one map */
            if (bytes_of(copied[k]) == bytes_of(v)) return false;
    }
    return true;
}

struct product_shape product_shape(const struct node *n)
{
    const struct value *a = n->in[0].value, *b = n->in[1].value, *y = n->out[0];
    bool ta = attr_or(n, "ta", 0) != 0;
    return (struct product_shape){.ta = ta,
                                  .tb = attr_or(n, "tb", 0) != 0,
                                  .add = n->op == OP_matmul_add,
                                  .m = y->shape.dim[0],
                                  .n = y->shape.dim[1],
                                  .k = a->shape.dim[ta ? 0 : 1],
                                  .lda = shape_columns(a->shape),
                                  .ldb = shape_columns(b->shape)};
}

struct planes planes_of(const struct facts *f, const struct node *n)
{
    const struct value *a = n->in[0].value, *b = n->in[1].value;
    struct product_shape s = product_shape(n);
    struct planes p = {.split_a = a->type == F32};
    if (a->type == b->type || s.lda % 8 || s.ldb % 8) return p;
    double least = 0;
    for (size_t i = 0; i < COUNT_OF(tensor_tile); i++)
        for (int64_t parts = 1; parts <= MOST_PARTS && (parts == 1 || s.k / parts >= LEAST_DEEP);
             parts *= 2) {
            const struct tile *t = &tensor_tile[i];
            int64_t each = rounded_up(rounded_up(s.k, parts), DEEP) * DEEP,
                    used = rounded_up(s.k, each);
            /* bytes of the parts, out and in again; 2.6 multiply-adds a byte and multiprocessor */
            double written = used == 1 ? 0 : (double)used * (double)(s.m * s.n) * 8;
            double time = time_of(f, t, used * rounded_up(s.m, t->m) * rounded_up(s.n, t->n)) *
                              (double)(PLANES * each + START) +
                          written * 0.38;
            if (fits(t, f->shared_bytes) && (!p.tile || time < least))
                p.tile = t, p.parts = used, p.each = each, least = time;
        }
    p.elements = shape_count((p.split_a ? a : b)->shape);
    p.plane = rounded_up(p.elements, 128) * 128;
    p.part_offset = p.plane * PLANES * (int64_t)sizeof(uint16_t);
    p.bytes = p.part_offset + (p.parts > 1 ? p.parts * s.m * s.n * (int64_t)sizeof(float) : 0);
    return p;
}
