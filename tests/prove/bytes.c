/* Which mark lies on which bytes of the arena, what stays there for good, and what a collective is
 * still filling or reading. */
#include "state.h"

void wrong(struct prove *p, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    p->why = text_format("step %d of %s, iteration %lld: %s", p->step, p->region->name,
                         (long long)p->n, text_vformat(format, args));
    va_end(args);
    longjmp(p->out, 1);
}

/* Addresses are the arena's: segment wire begins after local_bytes. */
int64_t address_of(struct prove *p, const struct buffer *b, int64_t offset, int64_t bytes,
                   const char *what)
{
    bool wire = b->segment == SEGMENT_WIRE;
    if (offset < 0 || offset + bytes > p->g->wire_bytes + (wire ? 0 : p->g->local_bytes))
        wrong(p, "%s lies outside its segment", what);
    return offset + (wire ? p->g->local_bytes : 0);
}

/* What is there for good (weights, moments, scalars, staging) is nobody else's. */
static void keep_clear(struct prove *p, int64_t from, int64_t to, const char *what)
{
    for (int k = 0; k < p->kept.n; k++)
        if (p->kept.item[k].from < to && from < p->kept.item[k].to)
            wrong(p, "%s is written over %s", what, p->kept.item[k].name);
}

static bool stays(enum buffer_kind kind)
{
    switch (kind) {
    case BUFFER_MASTER:
    case BUFFER_GRADIENT:
    case BUFFER_MOMENT1:
    case BUFFER_MOMENT2:
    case BUFFER_WEIGHTS:
    case BUFFER_SCALARS:
    case BUFFER_STAGING:
    case BUFFER_REDUCE_STAGING:
    case BUFFER_METRICS: return true;
    case BUFFER_WORKSPACE:
    case BUFFER_GATHERED:
    case BUFFER_GRADIENT_SLOTS:
    case BUFFER_GRADIENT_SHARDS:
    case BUFFER_CARRIED:
    case BUFFER_SAVED:
    case BUFFER_BATCH:
    case BUFFER_TABLES:
    case BUFFER_WORKING:
    case BUFFER_ALIAS: return false;
    }
    bug("buffer kind %d", (int)kind);
}

void keep_all(struct prove *p)
{
    p->region = p->g->region.item[0];
    for (int i = 0; i < p->g->buffer.n; i++) {
        const struct buffer *b = p->g->buffer.item[i];
        if (!stays(b->kind)) continue;
        int64_t from = address_of(p, b, b->offset, b->bytes, b->name);
        keep_clear(p, from, from + b->bytes, b->name);
        PUSH(&p->kept, ((struct kept){b->name, from, from + b->bytes}));
    }
}

void write_bytes(struct prove *p, int64_t from, int64_t to, int64_t mark, const char *what)
{
    keep_clear(p, from, to, what);
    for (int k = 0; k < p->flight.n; k++) {
        const struct flight *f = &p->flight.item[k];
        if (f->from < to && from < f->to)
            wrong(p, "%s is written where event %d is still under way", what, f->event);
    }
    VECTOR(struct range) now = {0};
    bool put = false;
    for (int k = 0; k < p->bytes.n; k++) {
        struct range r = p->bytes.item[k];
        if (!put && r.to > from) {
            if (r.from < from) PUSH(&now, ((struct range){r.from, from, r.mark}));
            PUSH(&now, ((struct range){from, to, mark}));
            put = true;
        }
        if (r.to <= from || r.from >= to)
            PUSH(&now, r);
        else if (r.to > to)
            PUSH(&now, ((struct range){to, r.to, r.mark}));
    }
    if (!put) PUSH(&now, ((struct range){from, to, mark}));
    p->bytes.n = 0;
    for (int k = 0; k < now.n; k++) PUSH(&p->bytes, now.item[k]);
}

void read_bytes(struct prove *p, int64_t from, int64_t to, int64_t mark, const char *what)
{
    int64_t at = from;
    for (int k = 0; k < p->flight.n; k++) {
        const struct flight *f = &p->flight.item[k];
        if (f->fills && f->from < to && from < f->to)
            wrong(p, "%s is read before event %d is waited for", what, f->event);
    }
    for (int k = 0; k < p->bytes.n && at < to; k++) {
        const struct range *r = &p->bytes.item[k];
        if (r->to <= at) continue;
        if (r->from > at) break;
        if (r->mark != mark) wrong(p, "%s is read where something else was written since", what);
        at = r->to;
    }
    if (at < to) wrong(p, "%s is read where nothing was written", what);
}
