/* Products by experts before cuDNN itself, without a GPU, as attention.c does it for attention.
 *
 * experts CAPABILITY (90 or 100): a line a shape that ends in "fits" (the workspace that the
 * compiler sets aside), "BYTES bytes do not fit" or "no plan". Status 2, and the reason: there is
 * no library to ask. */
#include "described.h"
#include "cuda/experts_cudnn.h"

static void judge(const struct grouped_product *p, int capability)
{
    struct dnn_graph g = {0};
    int64_t bytes = 0;
    printf("%lld rows by %lld experts, %lld to %lld%s: ", (long long)p->rows, (long long)p->experts,
           (long long)p->in, (long long)p->out, p->across ? ", across" : "");
    void *device = dnn_device_as(&g, described(capability));
    cudnn_grouped_graph(&g, p);
    if (g.status) printf("the graph is refused (%s), ", cudnn.cudnnGetErrorString(g.status));
    void *plan = dnn_plan(&g, device, NULL, INT64_MAX, &bytes);
    if (!plan)
        printf("no plan\n");
    else if (bytes <= 1 << 20)
        printf("fits\n");
    else
        printf("%lld bytes do not fit\n", (long long)bytes);
    dnn_drop(&g);
}

int main(int n, char **argument)
{
    char why[LIBRARY_WHY];
    if (!cuda_library_open(LIBRARY_CUDNN, why)) {
        puts(why);
        return 2;
    }
    if (cudnn.cudnnGetVersion() < 91800) {
        printf("cuDNN %zu has no grouped products\n", cudnn.cudnnGetVersion());
        return 2;
    }
    static const struct grouped_product shape[] = {
        {64, 32768, 2048, 768, false}, {8, 1000, 48, 40, false}, {64, 32768, 768, 2048, true}};
    for (size_t i = 0; i < sizeof shape / sizeof *shape; i++)
        judge(&shape[i], n > 1 ? atoi(argument[1]) : 90);
    return 0;
}
