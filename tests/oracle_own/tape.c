/* A tape of scalars: every multiplication, exponential and inner product is one entry with its own
 * partial derivatives, and the backward pass walks the entries in reverse. There is no formula for
 * the gradient of a norm, of attention or of a mixture here that could share a mistake with the
 * compiler's. */
#include "truth.h"

#include <stdlib.h>
#include <string.h>

/* d is the derivative of `out` by `a`, e by `b`; an inner product keeps strides instead. */
struct entry {
    int out, a, b, n, stride_a, stride_b;
    double d, e;
};
double *value, *gradient;
static struct entry *tape;
static int used, entries, room_values, room_entries;

int reserve(int n)
{
    while (used + n > room_values) {
        room_values = room_values ? 2 * room_values : 1 << 20;
        value = realloc(value, (size_t)room_values * sizeof *value);
        gradient = realloc(gradient, (size_t)room_values * sizeof *gradient);
        if (!value || !gradient) fatal("out of", "memory");
    }
    memset(value + used, 0, (size_t)n * sizeof *value);
    memset(gradient + used, 0, (size_t)n * sizeof *gradient);
    used += n;
    return used - n;
}
int reserved(void) { return used; }
void rewind_to(int n)
{
    used = n;
    entries = 0;
}
static void record(struct entry e)
{
    if (entries == room_entries) {
        room_entries = room_entries ? 2 * room_entries : 1 << 20;
        tape = realloc(tape, (size_t)room_entries * sizeof *tape);
        if (!tape) fatal("out of", "memory");
    }
    tape[entries++] = e;
}
void unary(int out, int a, double y, double d)
{
    value[out] = y;
    record((struct entry){.out = out, .a = a, .b = -1, .d = d});
}
void binary(int out, int a, int b, double y, double d, double e)
{
    value[out] = y;
    record((struct entry){.out = out, .a = a, .b = b, .d = d, .e = e});
}
void times(int out, int a, int b) { binary(out, a, b, value[a] * value[b], value[b], value[a]); }
void plus(int out, int a, int b) { binary(out, a, b, value[a] + value[b], 1, 1); }
void inner(int out, int n, int a, int stride_a, int b, int stride_b)
{
    double s = 0;
    for (int i = 0; i < n; i++) s += value[a + i * stride_a] * value[b + i * stride_b];
    value[out] = s;
    record((struct entry){
        .out = out, .a = a, .b = b, .n = n, .stride_a = stride_a, .stride_b = stride_b});
}
void walk_back(void)
{
    for (int k = entries - 1; k >= 0; k--) {
        const struct entry *e = &tape[k];
        double g = gradient[e->out];
        if (g == 0) continue;
        if (e->n)
            for (int i = 0; i < e->n; i++) {
                int a = e->a + i * e->stride_a, b = e->b + i * e->stride_b;
                double va = value[a], vb = value[b];
                gradient[a] += g * vb;
                gradient[b] += g * va;
            }
        else {
            gradient[e->a] += g * e->d;
            if (e->b >= 0) gradient[e->b] += g * e->e;
        }
    }
}
