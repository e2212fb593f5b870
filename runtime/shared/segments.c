/* Which range of which stored tensor is in which rank's shard. A flat unit is cut into equal shards
 * anywhere, so a tensor may begin in one rank and end in the next, and a rank may hold the end of
 * one tensor, an alignment gap and the beginning of another. Loading, saving, decay groups and
 * norms all use the one overlap that is computed here. */
#include "trainer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }
static int64_t larger(int64_t a, int64_t b) { return a > b ? a : b; }

static int64_t parts_of(const struct tensor *t) { return t->stack ? t->stack : 1; }

/* From one part to the next. */
static int64_t step_of(const struct tensor *t)
{
    return t->step ? t->step : t->count / parts_of(t);
}

bool stored_first(struct stored *s)
{
    for (int u = 0; u < program.units; u++)
        if (program.unit[u].count > 0 && program.unit[u].tensors > 0) {
            *s = (struct stored){.unit = &program.unit[u], .tensor = program.unit[u].tensor};
            return true;
        }
    return false;
}

/* Order: units, instances, tensors, parts. */
bool stored_next(struct stored *s)
{
    const struct unit *u = s->unit;
    if (++s->part < parts_of(s->tensor)) return true;
    s->part = 0;
    if (++s->tensor < u->tensor + u->tensors) return true;
    s->tensor = u->tensor;
    if (++s->instance < u->count) return true;
    s->instance = 0;
    while (++u < program.unit + program.units)
        if (u->count > 0 && u->tensors > 0) {
            *s = (struct stored){.unit = u, .tensor = u->tensor};
            return true;
        }
    return false;
}

int64_t stored_count(void)
{
    int64_t n = 0;
    for (int u = 0; u < program.units; u++)
        for (int t = 0; t < program.unit[u].tensors; t++)
            n += program.unit[u].count * parts_of(&program.unit[u].tensor[t]);
    return n;
}

/* "layers.9." before "layers.10.": digits are compared as the number that they write. */
static int compare_names(const char *a, const char *b)
{
    while (*a && *b) {
        size_t x = strspn(a, "0123456789"), y = strspn(b, "0123456789");
        if (x && y) {
            int sign = x != y ? (x < y ? -1 : 1) : strncmp(a, b, x);
            if (sign) return sign;
            a += x;
            b += y;
        } else if (*a != *b)
            return (unsigned char)*a < (unsigned char)*b ? -1 : 1;
        else {
            a++;
            b++;
        }
    }
    return (*a != 0) - (*b != 0);
}

static int compare_stored(const void *a, const void *b)
{
    char x[TENSOR_NAME_BYTES], y[TENSOR_NAME_BYTES];
    stored_name(a, x, sizeof x);
    stored_name(b, y, sizeof y);
    return compare_names(x, y);
}

const struct stored *stored_sorted(void)
{
    struct stored *all = ROOM(struct stored, stored_count()), s;
    int64_t n = 0;
    for (bool more = stored_first(&s); more; more = stored_next(&s)) all[n++] = s;
    qsort(all, (size_t)n, sizeof *all, compare_stored);
    return all;
}

int64_t stored_elements(const struct stored *s) { return s->tensor->count / parts_of(s->tensor); }

int stored_shape(const struct stored *s, int64_t dim[4])
{
    int skip = s->tensor->stack ? 1 : 0, rank = s->tensor->rank - skip;
    for (int i = 0; i < rank; i++) dim[i] = s->tensor->dim[i + skip];
    return rank;
}

void stored_name(const struct stored *s, char *to, size_t bytes)
{
    size_t n = 0;
    for (const char *c = s->tensor->name; *c && n + 1 < bytes;) {
        bool layer = !strncmp(c, "{i}", 3), part = !strncmp(c, "{e}", 3);
        if (!layer && !part) {
            to[n++] = *c++;
            continue;
        }
        int64_t number = part             ? s->part
                         : s->unit->layer ? s->unit->layer[s->instance]
                                          : s->instance;
        int wrote = snprintf(to + n, bytes - n, "%lld", (long long)number);
        n += wrote < 0 ? 0 : (size_t)smaller(wrote, (int64_t)(bytes - n) - 1);
        c += 3;
    }
    to[n] = 0;
}

/* The length of the UTF-8 sequence at `s`; 0: it is none. */
static int utf8_length(const char *s)
{
    unsigned char b = (unsigned char)*s;
    int length = b < 0x80 ? 1 : b >= 0xC2 && b < 0xE0 ? 2 : b >= 0xE0 && b < 0xF0 ? 3 : 4;
    if ((b >= 0x80 && b < 0xC2) || b > 0xF4) return 0;
    for (int i = 1; i < length; i++)
        if (((unsigned char)s[i] & 0xC0) != 0x80) return 0;
    /* overlong forms, surrogates, beyond U+10FFFF */
    unsigned char next = length > 1 ? (unsigned char)s[1] : 0;
    bool bad = (b == 0xE0 && next < 0xA0) || (b == 0xED && next > 0x9F) ||
               (b == 0xF0 && next < 0x90) || (b == 0xF4 && next > 0x8F);
    return bad ? 0 : length;
}

void stored_name_json(const struct stored *s, char to[TENSOR_JSON_BYTES])
{
    char name[TENSOR_NAME_BYTES];
    stored_name(s, name, sizeof name);
    char *at = to;
    *at++ = '"';
    for (const char *c = name; *c;) {
        int length = utf8_length(c);
        if (!length)
            at += sprintf(at, "\\ufffd");
        else if (*c == '"' || *c == '\\')
            at += sprintf(at, "\\%c", *c);
        else if ((unsigned char)*c < 0x20)
            at += sprintf(at, "\\u%04x", (unsigned char)*c);
        else {
            memcpy(at, c, (size_t)length);
            at += length;
        }
        c += length ? length : 1;
    }
    *at++ = '"';
    *at = 0;
}

int64_t state_parts(void) { return program.fsdp * (program.parts ? program.parts : 1); }

int64_t state_part(const struct unit *u) { return program.parts ? u->part : u->shard; }

int state_owner(int64_t part)
{
    const int64_t parts = program.parts ? program.parts : 1;
    return (int)(part % parts * program.fsdp + part / parts);
}

struct piece stored_piece(const struct stored *s, int64_t part)
{
    const struct unit *u = s->unit;
    const int64_t each = state_part(u);
    int64_t n = stored_elements(s), flat = s->tensor->offset + s->part * step_of(s->tensor);
    int64_t from = larger(flat, part * each), to = smaller(flat + n, (part + 1) * each);
    if (from >= to) return (struct piece){0};
    return (struct piece){.element = from - flat,
                          .at = u->state_offset + s->instance * each + from - part * each,
                          .count = to - from};
}

int64_t gradient_at(const struct stored *s, int64_t at)
{
    const struct unit *u = s->unit;
    if (!program.parts || !program.gradients_whole) return at;
    return at - u->state_offset - s->instance * u->part + u->shard_offset + s->instance * u->shard;
}

static bool moves_alike(const struct stretch *s, const struct tensor *w)
{
    const double a[] = {s->decay, s->lr_scale, s->balance_mean, s->balance_rate},
                 b[] = {w->weight_decay, w->lr_scale, w->balance_mean, w->balance_rate};
    bool alike = true;
    for (int i = 0; i < 4; i++) alike &= !(a[i] < b[i]) && !(a[i] > b[i]);
    return alike;
}

static int stretch_add(const struct unit *u, int64_t part, const struct tensor *w, int64_t first,
                       int64_t count, struct stretch *to, int n)
{
    const int64_t each = state_part(u);
    int64_t from = larger(first, part * each) - part * each;
    int64_t end = smaller(first + count, (part + 1) * each) - part * each;
    if (from >= end) return n;
    if (n > 0 && to[n - 1].from + to[n - 1].count == from && moves_alike(&to[n - 1], w))
        to[n - 1].count += end - from;
    else
        to[n++] = (struct stretch){.from = from,
                                   .count = end - from,
                                   .decay = w->weight_decay,
                                   .lr_scale = w->lr_scale,
                                   .balance_mean = w->balance_mean,
                                   .balance_rate = w->balance_rate};
    return n;
}

/* Tensors lie in the order of their table; of two with a step, the parts of the second lie between
 * those of the first. Neighbours that touch and have the same decay and rate become one stretch. */
int segments_stretches(const struct unit *u, int64_t part, struct stretch *to)
{
    int n = 0;
    for (int t = 0; t < u->tensors; t++) {
        const struct tensor *w = &u->tensor[t];
        if (!w->step) {
            n = stretch_add(u, part, w, w->offset, w->count, to, n);
            continue;
        }
        for (int64_t e = 0; e < 2 * parts_of(w); e++) {
            const struct tensor *of = &w[e % 2];
            n = stretch_add(u, part, of, of->offset + e / 2 * w->step, w->count / parts_of(w), to,
                            n);
        }
        t++;
    }
    return n;
}

/* More than there can be of a unit. */
static int64_t stretches_most(const struct unit *u)
{
    int64_t n = 0;
    for (int t = 0; t < u->tensors; t++) n += u->tensor[t].step ? parts_of(&u->tensor[t]) : 1;
    return n;
}

struct instance *segments_instances(void)
{
    int64_t n = 0;
    for (int u = 0; u < program.units; u++) n += program.unit[u].count;
    struct instance *all = ROOM(struct instance, n);
    n = 0;
    for (int u = 0; u < program.units; u++) {
        const struct unit *unit = &program.unit[u];
        struct stretch *s = ROOM(struct stretch, stretches_most(unit));
        int stretches = segments_stretches(unit, world.part, s);
        int64_t elements = 0;
        for (int i = 0; i < stretches; i++) elements += s[i].count;
        for (int64_t k = 0; k < unit->count; k++)
            all[n++] = (struct instance){unit, k, s, stretches, elements};
    }
    return all;
}

/* Tensor t has its parts between those of the one before. */
static bool is_second(const struct unit *u, int t)
{
    const struct tensor *w = t > 0 && t < u->tensors ? &u->tensor[t] : NULL;
    return w && w->step && w[-1].step == w->step && w[-1].count == w->count &&
           w->step == 2 * (w->count / parts_of(w)) && w[-1].offset + w->step / 2 == w->offset;
}

bool segments_check(void)
{
    const struct program *p = &program;
    int64_t parameters = 0, state = 0, whole = 0;
    if (p->fsdp < 1 || p->dp < 1 || p->accumulation < 1 || p->local < 1 || p->sequence < 1 ||
        p->tokens != p->local * p->sequence ||
        p->global != p->local * p->accumulation * p->fsdp * p->dp)
        return fail_note("program.c contradicts itself: batch of %lld sequences on fsdp %lld x dp "
                         "%lld with local %lld, accumulation %lld",
                         (long long)p->global, (long long)p->fsdp, (long long)p->dp,
                         (long long)p->local, (long long)p->accumulation);
    for (int i = 0; i < p->units; i++) {
        const struct unit *u = &p->unit[i];
        int64_t end = 0;
        if (p->parts && (p->parts != p->dp || u->part < 1 || u->part * p->parts != u->shard))
            return fail_note(
                "program.c contradicts itself: unit %s has shards of %lld, %lld parts of %lld",
                u->name, (long long)u->shard, (long long)p->parts, (long long)u->part);
        if (u->shard * p->fsdp < u->elements || u->shard < 1)
            return fail_note(
                "program.c contradicts itself: unit %s has %lld elements, %lld shards of %lld",
                u->name, (long long)u->elements, (long long)p->fsdp, (long long)u->shard);
        for (int t = 0; t < u->tensors; t++) {
            const struct tensor *w = &u->tensor[t];
            int64_t count = 1;
            for (int k = 0; k < w->rank; k++) count *= w->dim[k];
            const int64_t part = w->count / parts_of(w),
                          last = w->offset + (parts_of(w) - 1) * step_of(w) + part;
            if ((w->offset < end && !is_second(u, t)) || last > u->elements || w->count != count ||
                (w->step && !is_second(u, t) && !is_second(u, t + 1)) ||
                (w->stack && (w->rank < 1 || w->dim[0] != w->stack)))
                return fail_note("program.c contradicts itself: tensor %s of unit %s", w->name,
                                 u->name);
            end = last;
            parameters += u->count * w->count;
        }
        int64_t last = u->state_offset + u->count * state_part(u);
        if (last > state) state = last;
        last = u->shard_offset + u->count * u->shard;
        if (last > whole) whole = last;
    }
    if (parameters != p->parameters)
        return fail_note("program.c contradicts itself: %lld parameters, its tensors have %lld",
                         (long long)p->parameters, (long long)parameters);
    const int64_t arena = p->local_bytes + p->wire_bytes;
    const int64_t element = p->compute_type == TYPE_BF16 ? 2 : 4;
    if (!p->parts) whole = state;
    if (p->master + 4 * state > arena ||
        p->gradient + 4 * (p->parts && !p->gradients_whole ? state : whole) > arena ||
        (p->parts && p->weights + element * whole > arena))
        return fail_note(
            "program.c contradicts itself: the state of %lld elements passes the end of the arena",
            (long long)state);
    return true;
}
