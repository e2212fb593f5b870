/* Tensor copies under fibers, the instruction alone (templates/cuda/wgmma.cuh, fiber_bulk.h): boxes
 * anywhere in and beside a tensor against the layout of the PTX manual, byte for byte; what the
 * driver refuses of a map; and planted mistakes: `templates_tensor NAME` must not come out right.
 * Products that are made of such copies are in templates_wgmma.cc. */
#include "fiber.h"

#include "machine.cuh"
#include "op_math.h"
#include "wgmma.cuh"

#include "templates.h"

enum mistake {
    RIGHT,
    NO_EXPECT,
    EXPECTS_MORE,
    EXPECTS_LESS,
    NO_WAIT,
    OVERWRITTEN,
    NO_WRITTEN,
    BARRIER_UNFENCED,
    MISPLACED,
    OUTSIDE,
    OTHER_COORDINATE,
    OTHER_BOX,
    NO_MAP,
    NOBODY_WAITS
};
enum { ROUNDS = 3 };

/* out[round] = two boxes, one below the other, at `at` and on the next plane. The second warp
 * brings them, the first takes them away and writes over the place. */
template <mistake M>
static void box_kernel(const tensor_map map, const int *at, int lines, unsigned char *out)
{
    DYNAMIC_SHARED(shared);
    unsigned char *stage = shared + (-shared_address(shared) & 1023);
    int box = lines * WGMMA_LINE, lane = (int)threadIdx.x & 31;
    uint64_t *full = (uint64_t *)(stage + 2 * box), *empty = full + 1;
    if (threadIdx.x == 0) {
        mbarrier_begin(full, 1), mbarrier_begin(empty, 32);
        if (M != BARRIER_UNFENCED) wgmma_written();
    }
    __syncthreads();
    for (int round = 0; round < ROUNDS; round++, at += 3) {
        if (threadIdx.x == 32) {
            if (M != OVERWRITTEN || round == 0) mbarrier_wait(empty, ~round & 1);
            if (M == NO_EXPECT)
                mbarrier_arrive(full);
            else
                mbarrier_expect(full, 2 * box + (M == EXPECTS_MORE   ? 128
                                                 : M == EXPECTS_LESS ? -box
                                                                     : 0));
            const tensor_map *of =
                M == NO_MAP ? (const tensor_map *)((const char *)&map + 64) : &map;
            int place = M == MISPLACED ? 128 : M == OUTSIDE ? 4096 : 0;
            tensor_copy(stage + place, of, at[0] + (M == OTHER_COORDINATE), at[1], at[2], full);
            tensor_copy(stage + box, of, at[0], at[1], at[2] + 1, full);
            if (M == NOBODY_WAITS && round == ROUNDS - 1)
                tensor_copy(stage, &map, at[0], at[1], at[2], empty);
        } else if (threadIdx.x < 32) {
            if (M != NO_WAIT) mbarrier_wait(full, round & 1);
            for (int i = lane * 16; i < 2 * box; i += 512) {
                *(uint4 *)(out + round * 2 * box + i) = *(const uint4 *)(stage + i);
                *(uint4 *)(stage + i) = make_uint4(1, 2, 3, 4);
            }
            if (M != NO_WRITTEN) wgmma_written();
            mbarrier_arrive(empty);
        }
    }
}
template <mistake M>
static bool box_case(int planes, int lines, int elements, int box, const int (&at)[3 * ROUNDS])
{
    int64_t bytes = (int64_t)2 * box * WGMMA_LINE;
    buffer<bf16> tensor((int64_t)planes * lines * elements);
    buffer<int> places(3 * ROUNDS);
    buffer<unsigned char> out(ROUNDS * bytes), wanted(ROUNDS * bytes);
    tensor_map map;
    bool right = true;
    for (int64_t i = 0; i < tensor.n; i++) tensor[i] = (bf16)(1 + i % 60000);
    for (int i = 0; i < 3 * ROUNDS; i++) places[i] = at[i];
    for (int r = 0; r < ROUNDS; r++)
        for (int i = 0; i < 2 * box; i++)
            for (int k = 0; k < 64; k++) {
                int plane = at[3 * r + 2] + i / box, line = at[3 * r + 1] + i % box,
                    element = at[3 * r] + k;
                bool there = plane >= 0 && plane < planes && line >= 0 && line < lines &&
                             element >= 0 && element < elements;
                bf16 x = there ? tensor[((int64_t)plane * lines + line) * elements + element] : 0;
                memcpy(wanted.at + r * bytes + i * 128 + ((k / 8) ^ (i % 8)) * 16 + k % 8 * 2, &x,
                       2);
            }
    const char *why =
        fiber_tensor_of(&map, tensor.at, planes, lines, elements, M == OTHER_BOX ? box / 2 : box);
    if (why) return printf("no map: %s\n", why), false;
    fiber_launch(dim3(1), dim3(64), bytes + 1024 + 16, box_kernel<M>, map, places.at, box, out.at);
    for (int64_t i = 0; i < out.n; i++) {
        if (M == RIGHT) want(out[i] == wanted[i], "box", i, out[i], wanted[i]);
        right = right && out[i] == wanted[i];
    }
    return right;
}

/* ── what the driver refuses ─────────────────────────────────────────────────── */
static void refused()
{
    alignas(128) unsigned char map[192];
    alignas(256) static unsigned char at[64];
    const struct {
        const char *why;
        int64_t planes, lines, elements;
        int box, off, off_map;
    } all[] = {{"", 1, 1, 8, 256, 0, 0},
               {"", 3, 7, 8, 64, 16, 64},
               {"the map is not on", 1, 1, 8, 64, 0, 32},
               {"the tensor is not on", 1, 1, 8, 64, 8, 0},
               {"a stride", 1, 1, 12, 64, 0, 0},
               {"a stride", 2, (int64_t)1 << 32, 128, 64, 0, 0},
               {"a size", 1, 0, 8, 64, 0, 0},
               {"a size", 1, ((int64_t)1 << 32) + 1, 8, 64, 0, 0},
               {"a box", 1, 1, 8, 257, 0, 0},
               {"a box", 1, 1, 8, 0, 0, 0}};
    for (auto &r : all) {
        const char *why =
            fiber_tensor_of(map + r.off_map, at + r.off, r.planes, r.lines, r.elements, r.box);
        bool told = *r.why ? why && !strncmp(why, r.why, strlen(r.why)) : !why;
        if (!told && ++failures) printf("refused: %s, not %s\n", why ? why : "taken", r.why);
    }
}

#define PLANTED(mistake) box_case<mistake>(2, 20, 136, 16, {8, 2, 0, 64, 3, 0, 16, 4, 0})
static int planted(const char *name)
{
    static const planted_mistake all[] = {
        {"no_expect", [] { return PLANTED(NO_EXPECT); }},
        {"expects_more", [] { return PLANTED(EXPECTS_MORE); }},
        {"expects_less", [] { return PLANTED(EXPECTS_LESS); }},
        {"no_wait", [] { return PLANTED(NO_WAIT); }},
        {"overwritten", [] { return PLANTED(OVERWRITTEN); }},
        {"no_written", [] { return PLANTED(NO_WRITTEN); }},
        {"barrier_unfenced", [] { return PLANTED(BARRIER_UNFENCED); }},
        {"misplaced", [] { return PLANTED(MISPLACED); }},
        {"outside", [] { return PLANTED(OUTSIDE); }},
        {"other_coordinate", [] { return PLANTED(OTHER_COORDINATE); }},
        {"other_box", [] { return PLANTED(OTHER_BOX); }},
        {"no_map", [] { return PLANTED(NO_MAP); }},
        {"nobody_waits", [] { return PLANTED(NOBODY_WAITS); }},
        {"nothing", [] { return PLANTED(RIGHT); }}};
    return run_planted(all, name);
}

int main(int argc, char **argv)
{
    if (argc > 1) return planted(argv[1]);
    refused();
    for (uint64_t seed = 1; seed <= 6; seed++) {
        fiber_seed(seed);
        box_case<RIGHT>(1, 5, 8, 256, {0, 0, 0, 1, -300, 0, 0, 4, -1});
        box_case<RIGHT>(3, 70, 200, 64, {0, 0, 0, 136, 8, 1, 192, 69, 2});
        box_case<RIGHT>(2, 9, 72, 8, {-63, -7, -1, 71, 8, 1, 72, 0, 0});
        box_case<RIGHT>(2, 9, 72, 16, {2147483647, 0, 0, -2147483647, 0, 0, 0, -2147483647, 0});
        box_case<RIGHT>(1, 130, 64, 128, {0, 0, 0, 0, 1, 0, 0, 2147483647, 0});
    }
    return failures != 0;
}
