/* What a row's sweep keeps for a later one: values that take long to compute, or that are rounded,
 * and that both want. They go where the kernel will store something else of the same extent, when
 * nothing reads those bytes in between, or into an array; so the later sweep loads what it would
 * compute again, to the same bits. For the loops of the cpu (fused.c). */
#include "emit/fused.h"

#include <limits.h>

struct seen {
    VECTOR(const struct node *) node;
};

/* A value of a row that is worth keeping: one that takes long, or that is rounded, which takes as
 * long as reading it and a few operations. */
static bool worth_keeping(struct fused *f, const struct node *n, int64_t columns)
{
    int64_t rows, mine;
    fused_extent(f, n->out[0], &rows, &mine);
    if (mine != columns || columns <= 1) return false;
    return n->out[0]->type == F32 ? fused_takes_long(n->op)
                                  : n->out[0]->type == BF16 && op_rows[n->op].class == CLASS_MAP;
}

/* Walks through what the elements of `v` are made of, column by column; a row's sum is known and
 * not gone into. Notes in which stages values that are worth keeping are wanted; or, once that is
 * known, goes no further than such a value and notes that it was reached. */
static void wanted_long(struct fused *f, const struct value *v, int stage, int64_t columns,
                        bool reach, bool taken, struct seen *seen)
{
    const struct node *n = emit_root(v)->node;
    if (!n || !fused_inside(f, v) ||
        (op_rows[n->op].class != CLASS_MAP && op_rows[n->op].class != CLASS_INDEX))
        return;
    for (int i = 0; i < seen->node.n; i++)
        if (seen->node.item[i] == n) return;
    PUSH(&seen->node, n);
    if (worth_keeping(f, n, columns)) {
        int i = 0;
        while (i < f->kept.n && f->kept.item[i].value != n->out[0]) i++;
        if (reach && i < f->kept.n) {
            f->kept.item[i].reached = true;
            return;
        }
        if (!reach && i == f->kept.n)
            PUSH(&f->kept, ((struct kept){.value = n->out[0], .first = INT_MAX, .last = stage}));
        if (!reach && !taken && stage < f->kept.item[i].first) f->kept.item[i].first = stage;
        if (!reach && stage > f->kept.item[i].last) f->kept.item[i].last = stage;
        if (!reach) f->kept.item[i].taken |= taken;
    }
    for (int i = 0; i < n->n_in; i++) {
        int64_t rows, whole = columns;
        /* what is taken from a row is taken from what is kept of it */
        bool take = n->op == OP_take && i == 0;
        if (take) fused_extent(f, n->in[0].value, &rows, &whole);
        if (n->in[i].value)
            wanted_long(f, n->in[i].value, stage, whole, reach, taken || take, seen);
    }
}

static bool shifts_columns(const struct emit_kernel *k)
{
    for (int i = 0; i < k->node.n; i++) {
        enum op op = k->node.item[i]->op;
        if (op == OP_rotate || op == OP_slice || op == OP_pad) return true;
    }
    return false;
}

/* Whether a later sweep than the one that makes `k` reads, other than through `k`, what `room` is
 * written over. */
static bool wanted_below(const struct fused *f, struct end **end, int n, const struct kept *k,
                         const struct end *room)
{
    bool over = false;
    for (int i = 0; i < f->k->replaced.n; i++)
        over |= f->k->replaced.item[i].out == room->node->out[0];
    for (int i = 0; i < n && over; i++)
        if (end[i]->stage > k->first && end[i]->of.value &&
            fused_reads_replaced(f, end[i]->of.value, k->value))
            return true;
    return false;
}

/* A result that is stored over the same row no earlier than the last time that `k` is wanted. */
static const struct end *room_for(const struct fused *f, struct end **end, int n,
                                  const struct kept *k)
{
    for (int i = 0; i < n; i++) {
        if (end[i]->kind != END_STORE || end[i]->stage < k->last ||
            end[i]->node->out[0]->type != F32)
            continue;
        if (!shape_same(end[i]->node->out[0]->shape, k->value->shape)) continue;
        if (wanted_below(f, end, n, k, end[i])) continue;
        bool taken = false;
        for (int j = 0; j < f->kept.n; j++)
            taken |= f->kept.item[j].array ==
                     fused_argument(f, ARGUMENT_OUT, end[i]->node->out[0], NULL);
        if (!taken) return end[i];
    }
    return NULL;
}

void fused_keep(struct fused *f, struct end **end, int n)
{
    f->kept.n = 0;
    if (f->flat || emit_walks_shard(f->k) || shifts_columns(f->k)) return;
    int chosen = 0;
    for (int reach = 0; reach < 2; reach++) {
        for (int i = 0; i < n; i++) {
            struct seen seen = {0};
            if (end[i]->of.value)
                wanted_long(f, end[i]->of.value, end[i]->stage, end[i]->columns, reach, false,
                            &seen);
        }
        chosen = 0;
        for (int i = 0; i < f->kept.n; i++)
            if (f->kept.item[i].first < f->kept.item[i].last && (!reach || f->kept.item[i].reached))
                f->kept.item[chosen++] = f->kept.item[i];
        f->kept.n = chosen;
    }
    chosen = 0;
    for (int i = 0; i < f->kept.n; i++) {
        struct kept k = f->kept.item[i];
        f->kept.item[chosen] = (struct kept){0};
        const struct end *room = k.taken ? NULL : room_for(f, end, n, &k);
        int64_t rows, columns;
        fused_extent(f, k.value, &rows, &columns);
        if (room)
            k.array = fused_argument(f, ARGUMENT_OUT, room->node->out[0], NULL),
            k.in_argument = true;
        else if (columns <= ARRAY_COLUMNS) {
            k.array = fused_name(f, LEVEL_KERNEL, k.value->name, "_kept");
            fused_line(f, LEVEL_KERNEL, "float %s[%ld];", k.array, columns);
        } else
            continue;
        f->kept.item[chosen++] = k;
    }
    f->kept.n = chosen;
}
