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

/* Runs the planted mistake of that name with eight seeds: 1 where a result is wrong, 0 where none
 * is, 2 without such a mistake. */
struct planted_mistake {
    const char *name;
    bool (*right)();
};
template <size_t N> static int run_planted(const planted_mistake (&all)[N], const char *name)
{
    for (auto &p : all) {
        if (strcmp(p.name, name)) continue;
        for (uint64_t seed = 1; seed <= 8; seed++)
            if (fiber_seed(seed), !p.right()) return printf("wrong with seed %d\n", (int)seed), 1;
        return 0;
    }
    return 2;
}

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

/* Rows that are sorted by experts, the weights [experts, out, in] of each ([experts, in, out] where
 * they are read across), and room for the product y = z w and the weights' gradient dw of dy. */
template <class T> struct expert_operands {
    int64_t experts, total = 0, in, out;
    buffer<int32_t> first;
    buffer<T> z, w, y, dy;
    buffer<float> dw;
    static int64_t sum(const std::vector<int> &rows)
    {
        int64_t n = 0;
        for (int each : rows) n += each;
        return n;
    }
    expert_operands(const std::vector<int> &rows, int64_t in, int64_t out)
        : experts((int64_t)rows.size()), in(in), out(out), first(experts + 1), z(sum(rows) * in),
          w(experts * in * out), y(sum(rows) * out), dy(sum(rows) * out), dw(experts * in * out)
    {
        for (int64_t e = 0; e <= experts; e++)
            first[e] = (int32_t)total, total += e < experts ? rows[(size_t)e] : 0;
        z.fill(), w.fill(), dy.fill();
    }
    /* y and, with `gradient`, dw are what plain loops give, and nothing is written beside them. */
    void agree(const char *what, bool across, bool gradient = true)
    {
        for (int64_t e = 0; e < experts; e++) {
            for (int64_t r = first[e]; r < first[e + 1]; r++)
                for (int64_t o = 0; o < out; o++) product_agrees(what, across, e, r, o);
            for (int64_t o = 0; o < out && gradient; o++)
                for (int64_t i = 0; i < in; i++) gradient_agrees(e, o, i);
        }
        y.unharmed(what), dw.unharmed(what);
    }

  private:
    void product_agrees(const char *what, bool across, int64_t e, int64_t r, int64_t o)
    {
        double sum = 0, size = 0;
        for (int64_t i = 0; i < in; i++) {
            double x = (double)get(z[r * in + i]) *
                       (double)get(w[e * in * out + (across ? i * out + o : o * in + i)]);
            sum += x, size += fabs(x);
        }
        want(close(get(y[r * out + o]), sum, size, sizeof(T) == 2), what, r * out + o,
             get(y[r * out + o]), sum);
    }
    void gradient_agrees(int64_t e, int64_t o, int64_t i)
    {
        double sum = 0, size = 0;
        for (int64_t r = first[e]; r < first[e + 1]; r++) {
            double x = (double)get(dy[r * out + o]) * (double)get(z[r * in + i]);
            sum += x, size += fabs(x);
        }
        want(close(dw[(e * out + o) * in + i], sum, size, false), "expert gradient",
             (e * out + o) * in + i, dw[(e * out + o) * in + i], sum);
    }
};

#endif
