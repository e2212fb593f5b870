/* Initial weights from seed, tensor name and element index only. A stream of numbers would make the
 * weights depend on which rank draws first; here every element can be computed alone, so all meshes
 * start from the same bits. The generator is Philox 4x32 with ten rounds (Salmon, Moraes, Dror,
 * Shaw: "Parallel random numbers: as easy as 1, 2, 3", 2011); one block of four words gives four
 * normals by Box-Muller. */
#include "trainer.h"

#include <math.h>

uint64_t random_key(int64_t seed, const char *name)
{
    uint64_t h = 0xcbf29ce484222325u; /* FNV-1a over the name, then mixed with the seed */
    for (const char *c = name; *c; c++) h = (h ^ (unsigned char)*c) * 0x100000001b3u;
    h ^= (uint64_t)seed * 0x9e3779b97f4a7c15u;
    h = (h ^ (h >> 30)) * 0xbf58476d1ce4e5b9u;
    h = (h ^ (h >> 27)) * 0x94d049bb133111ebu;
    return h ^ (h >> 31);
}

static void philox(uint64_t key, uint64_t counter, uint32_t word[4])
{
    uint32_t k0 = (uint32_t)key, k1 = (uint32_t)(key >> 32);
    uint32_t c0 = (uint32_t)counter, c1 = (uint32_t)(counter >> 32), c2 = 0, c3 = 0;
    for (int round = 0; round < 10; round++) {
        uint64_t a = (uint64_t)0xd2511f53u * c0, b = (uint64_t)0xcd9e8d57u * c2;
        uint32_t n0 = (uint32_t)(b >> 32) ^ c1 ^ k0, n2 = (uint32_t)(a >> 32) ^ c3 ^ k1;
        c1 = (uint32_t)b;
        c3 = (uint32_t)a;
        c0 = n0;
        c2 = n2;
        k0 += 0x9e3779b9u;
        k1 += 0xbb67ae85u;
    }
    word[0] = c0;
    word[1] = c1;
    word[2] = c2;
    word[3] = c3;
}

void random_normal(uint64_t key, double std, int64_t from, int64_t n, float *to)
{
    const double turn = 6.28318530717958647692, unit = 1.0 / 4294967296.0;
    for (int64_t i = from; i < from + n;) {
        uint32_t word[4];
        double normal[4];
        philox(key, (uint64_t)(i / 4), word);
        for (int pair = 0; pair < 2; pair++) {
            double radius = sqrt(-2 * log(((double)word[2 * pair] + 0.5) * unit));
            double angle = turn * (((double)word[2 * pair + 1] + 0.5) * unit);
            normal[2 * pair] = radius * cos(angle);
            normal[2 * pair + 1] = radius * sin(angle);
        }
        for (int64_t k = i % 4; k < 4 && i < from + n; k++, i++)
            to[i - from] = (float)(std * normal[k]);
    }
}
