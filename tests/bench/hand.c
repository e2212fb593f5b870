/* The work of the generated kernels, written by hand for this size: what
 * generation is measured against. Several accumulators, vectorised by the compiler under the same
 * flags, no more passes over memory than it takes. */
#include "op_math.h"

void hand_rms_forward(const float *restrict x, const float *restrict g, float *restrict y,
                      int64_t rows, int64_t n, float eps);
void hand_rms_backward(const float *restrict x, const float *restrict g, const float *restrict dy,
                       float *restrict dx, float *restrict dg, int64_t rows, int64_t n, float eps);
void hand_entropy(const float *restrict x, const int32_t *restrict target, float scale,
                  float *restrict dx, float *restrict loss, int64_t rows, int64_t n);

static float scale_of(const float *restrict x, int64_t n, float eps)
{
    float s = 0;
#pragma omp simd reduction(+ : s)
    for (int64_t j = 0; j < n; j++) s += x[j] * x[j];
    return 1.0f / sqrtf(s / (float)n + eps);
}

void hand_rms_forward(const float *restrict x, const float *restrict g, float *restrict y,
                      int64_t rows, int64_t n, float eps)
{
    for (int64_t i = 0; i < rows; i++, x += n, y += n) {
        float r = scale_of(x, n, eps);
        for (int64_t j = 0; j < n; j++) y[j] = x[j] * r * g[j];
    }
}

void hand_rms_backward(const float *restrict x, const float *restrict g, const float *restrict dy,
                       float *restrict dx, float *restrict dg, int64_t rows, int64_t n, float eps)
{
    memset(dg, 0, sizeof *dg * (size_t)n);
    for (int64_t i = 0; i < rows; i++, x += n, dy += n, dx += n) {
        float s = 0, dot = 0;
#pragma omp simd reduction(+ : s, dot)
        for (int64_t j = 0; j < n; j++) {
            s += x[j] * x[j];
            dot += dy[j] * g[j] * x[j];
        }
        float r = 1.0f / sqrtf(s / (float)n + eps), c = dot * r * r * r / (float)n;
        for (int64_t j = 0; j < n; j++) {
            dx[j] = dy[j] * g[j] * r - x[j] * c;
            dg[j] += dy[j] * (x[j] * r);
        }
    }
}

/* Mean loss of the rows is the caller's; the gradient of each is written where its exponentials
 * were kept. */
void hand_entropy(const float *restrict x, const int32_t *restrict target, float scale,
                  float *restrict dx, float *restrict loss, int64_t rows, int64_t n)
{
    double all = 0;
    for (int64_t i = 0; i < rows; i++, x += n, dx += n) {
        float top = -INFINITY, sum = 0;
#pragma omp simd reduction(max : top)
        for (int64_t j = 0; j < n; j++) top = x[j] > top ? x[j] : top;
#pragma omp simd reduction(+ : sum)
        for (int64_t j = 0; j < n; j++) {
            float e = op_exp_f32(x[j] - top);
            dx[j] = e;
            sum += e;
        }
        all += (double)((op_log_f32(sum) + top - x[target[i]]) * scale);
        float c = scale / sum;
        for (int64_t j = 0; j < n; j++) dx[j] *= c;
        dx[target[i]] -= scale;
    }
    *loss = (float)all;
}
