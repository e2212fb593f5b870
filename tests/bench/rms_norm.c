/* Is a generated RMSNorm as fast as one written by hand? Both are called on the same arrays, 4096
 * rows of 1024, forward and backward (dx and the weight's gradient), best of many. A composite
 * layer made of primitive ops is only worth having if fusion gives this speed back. (The generated
 * backward pass also makes the result again, for the product that reads it.) Ends with 1 when the
 * results differ. */
#define _POSIX_C_SOURCE 200809L
#include "device.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { ROWS = 4096, COLUMNS = 1024, LANES = 16, REPEATS = 40 };
extern const struct kernel FORWARD, BACKWARD;
#define CALL(kernel, ...) kernel.call((void *[]){__VA_ARGS__, 0}, NULL);
static const float eps = 1e-5f;

static void hand_forward(const float *restrict x, const float *restrict g, float *restrict y)
{
    for (int64_t r = 0; r < ROWS; r++, x += COLUMNS, y += COLUMNS) {
        float part[LANES] = {0}, sum = 0;
        for (int64_t j = 0; j < COLUMNS; j += LANES) {
#pragma omp simd
            for (int k = 0; k < LANES; k++) part[k] += x[j + k] * x[j + k];
        }
        for (int k = 0; k < LANES; k++) sum += part[k];
        const float scale = 1 / sqrtf(sum / COLUMNS + eps);
        for (int64_t j = 0; j < COLUMNS; j++) y[j] = x[j] * scale * g[j];
    }
}
/* dx = r g dy - x r^3 sum(g dy x) / n;  dg = sum over rows of dy x r */
static void hand_backward(const float *restrict x, const float *restrict g,
                          const float *restrict dy, float *restrict dx, float *restrict dg)
{
    memset(dg, 0, COLUMNS * sizeof *dg);
    for (int64_t r = 0; r < ROWS; r++, x += COLUMNS, dy += COLUMNS, dx += COLUMNS) {
        float square[LANES] = {0}, product[LANES] = {0}, sum = 0, dot = 0;
        for (int64_t j = 0; j < COLUMNS; j += LANES) {
#pragma omp simd
            for (int k = 0; k < LANES; k++)
                square[k] += x[j + k] * x[j + k], product[k] += dy[j + k] * g[j + k] * x[j + k];
        }
        for (int k = 0; k < LANES; k++) sum += square[k], dot += product[k];
        const float scale = 1 / sqrtf(sum / COLUMNS + eps),
                    back = scale * scale * scale * dot / COLUMNS;
        for (int64_t j = 0; j < COLUMNS; j++) {
            dx[j] = scale * g[j] * dy[j] - back * x[j];
            dg[j] += dy[j] * x[j] * scale;
        }
    }
}

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}
static float *array(size_t n, float scale)
{
    float *a = aligned_alloc(256, n * sizeof *a);
    if (!a) exit(4);
    for (size_t i = 0; i < n; i++)
        a[i] = scale * ((float)((i * 2654435761u >> 7) % 2001) / 1000 - 1);
    return a;
}
static double worst(const float *a, const float *b, size_t n)
{
    double d = 0, m = 0;
    for (size_t i = 0; i < n; i++)
        d = fmax(d, fabs((double)a[i] - (double)b[i])), m = fmax(m, fabs((double)b[i]));
    return d / m;
}
int main(void)
{
    float *x = array(ROWS * COLUMNS, 1), *g = array(COLUMNS, 1), *dy = array(ROWS * COLUMNS, 1e-2f);
    float *y[2] = {array(ROWS * COLUMNS, 0), array(ROWS * COLUMNS, 0)},
          *dx[2] = {array(ROWS * COLUMNS, 0), array(ROWS * COLUMNS, 0)},
          *dg[2] = {array(COLUMNS, 0), array(COLUMNS, 0)}, *scratch[SCRATCH];
    for (int i = 0; i < SCRATCH; i++) scratch[i] = array(ROWS * COLUMNS, 0);
    double best[4] = {1e9, 1e9, 1e9, 1e9};
    for (int n = 0; n < REPEATS; n++) {
        double t = now();
        hand_forward(x, g, y[0]);
        best[0] = fmin(best[0], now() - t);
        t = now();
        FORWARD_CALLS
        best[1] = fmin(best[1], now() - t);
        t = now();
        hand_backward(x, g, dy, dx[0], dg[0]);
        best[2] = fmin(best[2], now() - t);
        t = now();
        BACKWARD_CALLS
        best[3] = fmin(best[3], now() - t);
    }
    const double in_y = worst(y[1], y[0], ROWS * COLUMNS),
                 in_dx = worst(dx[1], dx[0], ROWS * COLUMNS), in_dg = worst(dg[1], dg[0], COLUMNS);
    printf("rms_norm forward   by hand %.3f ms  generated %.3f ms (%.2f of it)  differ by %.1e\n",
           1e3 * best[0], 1e3 * best[1], best[1] / best[0], in_y);
    printf("rms_norm backward  by hand %.3f ms  generated %.3f ms (%.2f of it)  differ by %.1e in "
           "dx, %.1e in dg\n",
           1e3 * best[2], 1e3 * best[3], best[3] / best[2], in_dx, in_dg);
    return !(in_y < 1e-5 && in_dx < 1e-5 && in_dg < 1e-4);
}
