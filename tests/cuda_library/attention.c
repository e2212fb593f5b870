/* Attention's graphs before cuDNN itself, without a GPU: for a device that is described and not
 * there, the library's heuristic is asked, engines are compiled, and what a plan needs is measured.
 * Nothing is run. The driver that it wants to load is a stand-in that takes every kernel (run.sh
 * makes it).
 *
 * attention CAPABILITY (90 or 100): a line a shape that ends in "fits" (the workspace that the
 * compiler sets aside), "BYTES bytes do not fit" or "no plan". Status 2, and the reason: there is
 * no library to ask. */
#include "cuda/attention_cudnn.h"
#include "described.h"

static void judge(const struct attention *a, int capability)
{
    struct dnn_graph g = {0};
    int64_t bytes = 0;
    printf("%s %lld x %lld tokens, %lld/%lld heads of %lld: ", a->gradient ? "gradient" : "forward",
           (long long)a->sequences, (long long)a->sequence, (long long)a->heads,
           (long long)a->kv_heads, (long long)a->width);
    void *device = dnn_device_as(&g, described(capability));
    const struct attention_way way = cudnn_attention_way(a, capability, cudnn.cudnnGetVersion());
    cudnn_attention_graph(&g, a, way.summed);
    if (g.status) printf("the graph is refused (%s), ", cudnn.cudnnGetErrorString(g.status));
    void *plan = dnn_plan(&g, device, way.engine, INT64_MAX, &bytes);
    int64_t rows = a->sequences * a->sequence * a->heads * (int64_t)sizeof(float),
            turns = 8 * a->heads * a->sequences * ((a->sequence + 63) / 64),
            room_for = (a->gradient ? 2 * rows * a->width + turns : 0) + (1 << 20);
    if (way.summed) room_for -= rows * a->width;
    if (!plan)
        printf("no plan\n");
    else if (bytes <= room_for)
        printf("fits\n");
    else
        printf("%lld bytes do not fit\n", (long long)bytes);
    dnn_drop(&g);
}

int main(int n, char **argument)
{
    char why[LIBRARY_WHY];
    int capability = n > 1 ? atoi(argument[1]) : 90;
    if (!cuda_library_open(LIBRARY_CUDNN, why)) {
        puts(why);
        return 2;
    }
    if (cudnn.cudnnGetVersion() < 91800) {
        printf("cuDNN %zu is older than what these answers are known of\n",
               cudnn.cudnnGetVersion());
        return 2;
    }
    static const struct attention shape[] = {{4, 4096, 32, 4, 128, 0.1f, false},
                                             {2, 100, 12, 12, 48, 0.1f, false},
                                             {1, 8192, 64, 8, 64, 0.1f, false}};
    for (size_t i = 0; i < sizeof shape / sizeof *shape; i++)
        for (int gradient = 0; gradient < 2; gradient++) {
            struct attention a = shape[i];
            a.gradient = gradient;
            judge(&a, capability);
        }
    return 0;
}
