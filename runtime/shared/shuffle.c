/* The shuffled order of an epoch, without a table: a table of 10^9 samples would take gigabytes on
 * every rank, and would have to be drawn again to resume. Here the permutation of [0, n) is
 * computed at any single place from seed and epoch, so every rank of every mesh sees the same order
 * and any step can be the first.
 *
 * The place is written as a pair (x, y) on a grid of about sqrt(n) by sqrt(n), and x and y are
 * shifted in turn by amounts that a mixing function derives from the other one. Each shift can be
 * undone, so the whole is a permutation of the grid (Black and Rogaway, "Ciphers with arbitrary
 * finite domains", 2002). A place outside [0, n) is permuted again until it is inside; the grid has
 * less than one row too many. */
#include "trainer.h"

enum { ROUNDS = 12 };

uint64_t shuffle_mix(uint64_t x)
{
    x += 0x9e3779b97f4a7c15u; /* Steele, Lea, Flood: "Fast splittable pseudorandom number
                                 generators", 2014 */
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

static uint64_t root_above(uint64_t n)
{
    uint64_t low = 1, high = (uint64_t)1 << 32;
    while (low < high) { /* the least whose square is n or more */
        uint64_t middle = (low + high) / 2;
        if (middle >= (n + middle - 1) / middle)
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

int64_t shuffle_place(int64_t seed, int64_t epoch, int64_t n, int64_t place)
{
    const uint64_t key = shuffle_mix(shuffle_mix((uint64_t)seed) + (uint64_t)epoch);
    const uint64_t columns = root_above((uint64_t)n), rows = ((uint64_t)n + columns - 1) / columns;
    uint64_t at = (uint64_t)place;
    do {
        uint64_t x = at % columns, y = at / columns;
        for (uint64_t round = 0; round < ROUNDS; round += 2) {
            x = (x + shuffle_mix(key ^ shuffle_mix(round << 32 ^ y)) % columns) % columns;
            y = (y + shuffle_mix(key ^ shuffle_mix((round + 1) << 32 ^ x)) % rows) % rows;
        }
        at = y * columns + x;
    } while (at >= (uint64_t)n);
    return (int64_t)at;
}
