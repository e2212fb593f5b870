/* What programs share that launch kernels of templates/cuda and hold them against plain loops:
 * complaints, buffers that tell when something is written beside them, numbers. */
#ifndef TEMPLATES_H
#define TEMPLATES_H

#include <vector>

static int failures;
static void want(bool right, const char *what, int64_t at, double got, double wanted)
{
    if (right || failures++ > 8) return;
    printf("%s: element %lld is %.9g, not %.9g\n", what, (long long)at, got, wanted);
}

static uint64_t random_state = 7;
static uint32_t random_bits()
{
    return (uint32_t)((random_state = random_state * 6364136223846793005u + 1442695040888963407u) >>
                      33);
}
static float random_value() { return (float)random_bits() / 1073741824.0f - 1.0f; }
static int64_t up(int64_t n, int64_t of) { return (n + of - 1) / of; }

static void put(float *to, float x) { *to = x; }
static void put(bf16 *to, float x) { *to = op_to_bf16(x); }
static float get(float x) { return x; }
static float get(bf16 x) { return op_from_bf16(x); }

/* On 256 bytes, as memory lays buffers out, with NaN on either side. */
template <class T> struct buffer {
    std::vector<unsigned char> room;
    int64_t n;
    T *at;
    explicit buffer(int64_t count) : room((size_t)count * sizeof(T) + 1024, 0xff), n(count)
    {
        at = (T *)(((uintptr_t)room.data() + 511) / 256 * 256);
    }
    buffer(const buffer &) = delete;
    T &operator[](int64_t i) { return at[i]; }
    void fill()
    {
        for (int64_t i = 0; i < n; i++) put(&at[i], random_value());
    }
    void blank() { memset((void *)at, 0xff, (size_t)n * sizeof(T)); }
    void unharmed(const char *what)
    {
        for (unsigned char *p = room.data(); p < (unsigned char *)at; p++)
            want(*p == 0xff, what, -1, *p, 255);
        for (unsigned char *p = (unsigned char *)(at + n); p < room.data() + room.size(); p++)
            want(*p == 0xff, what, n, *p, 255);
    }
};

/* One rounding to BF16 where the result is kept in it, and the sum's own roundings. */
static bool close(double got, double wanted, double size, bool half)
{
    return fabs(got - wanted) <= 2e-6 * size + (half ? fabs(wanted) / 256 : 0) + 1e-30;
}

#endif
