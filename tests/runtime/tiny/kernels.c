/* The kernels of the hand-written plan: plain loops. TINY_SLEEP_MS makes every forward pass slow,
 * for the tests that stop or end a rank in the middle; TINY_HANG=RANK makes that rank compute
 * without end. */
#define _GNU_SOURCE
#include "tiny.h"

#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static void nap(void)
{
    const char *sleep = getenv("TINY_SLEEP_MS"), *hang = getenv("TINY_HANG"),
               *rank = getenv("OMPI_COMM_WORLD_RANK");
    long ms = sleep ? atol(sleep) : 0;
    if (hang && rank && atol(hang) == atol(rank)) ms = 1000000;
    if (ms > 0)
        nanosleep(&(struct timespec){.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000}, NULL);
}

static float weight(const void *slot, int64_t i)
{
    if (COMPUTE == TYPE_F32) return ((const float *)slot)[i];
    uint32_t bits = (uint32_t)((const uint16_t *)slot)[i] << 16;
    float x;
    memcpy(&x, &bits, 4);
    return x;
}

void tiny_look_up(void *const *a, const struct stretch *s) /* logits, tokens, table slot */
{
    (void)s;
    nap();
    float *logits = a[0];
    const int32_t *token = a[1];
    for (int t = 0; t < TOKENS; t++)
        for (int v = 0; v < V; v++)
            logits[t * V + v] = weight(a[2], (int64_t)token[t] * V + v) + weight(a[2], BIAS_AT + v);
}

void tiny_shift(void *const *a, const struct stretch *s) /* logits, layer slot */
{
    (void)s;
    float *logits = a[0];
    for (int t = 0; t < TOKENS; t++)
        for (int v = 0; v < V; v++)
            logits[t * V + v] +=
                weight(a[1], v) + weight(a[1], MIX_AT + v) + 0.5f * weight(a[1], MIX_AT + V + v);
}

/* logits (their gradient after), targets, column, scalars, metrics */
void tiny_loss(void *const *a, const struct stretch *s)
{
    (void)s;
    float *logits = a[0], *column = a[2];
    const int32_t *target = a[1];
    const float *scalar = a[3];
    double *metric = a[4], loss = 0;
    const float seed = scalar[SCALAR_LOSS_SCALE] / (float)(FSDP * DP * ACCUMULATION);
    memset(column, 0, V * sizeof *column);
    for (int t = 0; t < TOKENS; t++) {
        float *x = logits + (int64_t)t * V, top = x[0], sum = 0;
        bool valid = !program.has_ignore || target[t] != program.ignore;
        for (int v = 1; v < V; v++) top = x[v] > top ? x[v] : top;
        for (int v = 0; v < V; v++) sum += expf(x[v] - top);
        if (valid) loss += (double)(logf(sum) + top - x[target[t]]);
        for (int v = 0; v < V; v++) {
            x[v] = valid ? (expf(x[v] - top) / sum - (v == target[t])) * seed : 0;
            column[v] += x[v];
        }
    }
    loss *= (double)scalar[SCALAR_LOSS_SCALE];
    metric[0] += loss;
    metric[1] += loss;
    metric[2] += 1;
    metric[3] += 2;
    metric[4] += 3;
}

/* table gradient slot, d logits, tokens, column */
void tiny_table_gradient(void *const *a, const struct stretch *s)
{
    (void)s;
    float *slot = a[0];
    const float *d = a[1], *column = a[3];
    const int32_t *token = a[2];
    memset(slot, 0, V * V * sizeof *slot);
    for (int t = 0; t < TOKENS; t++)
        for (int v = 0; v < V; v++) slot[(int64_t)token[t] * V + v] += d[(int64_t)t * V + v];
    memcpy(slot + BIAS_AT, column, V * sizeof *slot);
}

void tiny_layer_gradient(void *const *a, const struct stretch *s) /* layer gradient slot, column */
{
    (void)s;
    float *slot = a[0];
    const float *column = a[1];
    for (int v = 0; v < V; v++) {
        slot[v] = slot[MIX_AT + v] = column[v];
        slot[MIX_AT + V + v] = 0.5f * column[v];
    }
}

void tiny_clear(void *const *a, const struct stretch *s)
{
    (void)s;
    *(double *)a[0] = 0;
}

void tiny_squares(void *const *a, const struct stretch *s) /* sum, gradient shard */
{
    const float *g = a[1];
    for (int64_t i = s->from; i < s->from + s->count; i++)
        *(double *)a[0] += (double)g[i] * (double)g[i];
}

void tiny_norm(void *const *a, const struct stretch *s) /* sum, scalars */
{
    (void)s;
    float *scalar = a[1];
    double norm = sqrt(*(double *)a[0]), clip = 1 / (norm + 1e-6);
    scalar[SCALAR_NORM] = (float)norm;
    scalar[SCALAR_CLIP] = (float)(clip < 1 ? clip : 1);
    scalar[SCALAR_SKIP] = isfinite(norm) ? 0.0f : 1.0f;
}

/* master, gradient, moment1, moment2, scalars */
void tiny_adamw(void *const *a, const struct stretch *s)
{
    float *w = a[0], *g = a[1], *m = a[2], *q = a[3], *scalar = a[4];
    if (scalar[SCALAR_SKIP] > 0) return;
    for (int64_t i = s->from; i < s->from + s->count; i++) {
        float gradient = g[i] * scalar[SCALAR_CLIP];
        m[i] = 0.9f * m[i] + 0.1f * gradient;
        q[i] = 0.95f * q[i] + 0.05f * gradient * gradient;
        w[i] *= 1 - scalar[SCALAR_LR] * (float)s->decay;
        w[i] -= scalar[SCALAR_LR] / scalar[SCALAR_BIAS1] * m[i] /
                (sqrtf(q[i] / scalar[SCALAR_BIAS2]) + 1e-8f);
    }
}
