/* What one rank writes of a checkpoint: one safetensors file with its share of master weights and
 * moments. Ranks write at once and each byte once: where replicas hold the same shard, each takes a
 * stretch of it. The file names tensors as they are stored, in pieces, so that any mesh, and any
 * script, finds every element without knowing how this one was cut.
 *
 * Written from a second copy by a thread of its own while training goes on, or from the device
 * while the run waits. Everything is a function of the plan and the step: the same state gives the
 * same bytes. */
#define _GNU_SOURCE
#define XXH_INLINE_ALL
#include "checkpoint.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include <xxhash.h>

enum { NAME_BYTES = 512, BUFFER_BYTES = 1 << 20, HEADER_ALIGN = 64, STEP_DIGITS = 20 };
enum { WAITING_BYTES = 256 << 20 }; /* that may wait for the disk before it is told to hurry */

static const char *const state_names[STATE_KINDS] = {"master", "moment1", "moment2"};

static struct {
    const float *copy; /* the share's elements, kind by kind; NULL: read from the device */
    char *header;
    int64_t header_bytes, step_at /* where the step's digits are in it */, elements;
    unsigned char *buffer;
    /* of the file at hand */
    int fd;
    int64_t used, waiting;
    bool finite;
    XXH3_state_t hash;
    char path[4096];
    _Atomic int64_t bytes;
    _Atomic bool cancelled;
} part = {.fd = -1};

/* ── shares ──────────────────────────────────────────────────────────────────── */

/* Of a shard, gaps included. */
static int64_t state_elements(void)
{
    int64_t n = 0;
    for (int i = 0; i < program.units; i++) {
        const struct unit *u = &program.unit[i];
        const int64_t end = u->state_offset + u->count * state_part(u);
        n = end > n ? end : n;
    }
    return n;
}

void state_share(int64_t replica, int64_t *from, int64_t *to)
{
    const int64_t n = state_elements(), most = (n + program.dp - 1) / program.dp;
    if (program.parts) {
        *from = 0, *to = n;
        return;
    }
    *from = replica * most < n ? replica * most : n;
    *to = *from + most < n ? *from + most : n;
}

struct piece state_piece(const struct stored *s, int64_t shard, int64_t replica)
{
    struct piece p = stored_piece(s, program.parts ? shard * program.parts + replica : shard);
    int64_t from, to;
    state_share(replica, &from, &to);
    const int64_t first = p.at > from ? p.at : from,
                  end = p.at + p.count < to ? p.at + p.count : to;
    if (p.count == 0 || first >= end) return (struct piece){0};
    return (struct piece){.element = p.element + first - p.at, .at = first, .count = end - first};
}

/* ── the header ──────────────────────────────────────────────────────────────── */

void part_name(int rank, char name[CHECKPOINT_NAME])
{
    snprintf(name, CHECKPOINT_NAME, "part-%05d.safetensors", rank);
}

/* A name as JSON; as many bytes as that takes, without to's end. */
static int64_t json_name(const char *name, char to[6 * NAME_BYTES])
{
    int64_t n = 0;
    for (; *name; name++) {
        const unsigned char c = (unsigned char)*name;
        if (c == '"' || c == '\\') to[n++] = '\\';
        if (c < 32)
            n += snprintf(to + n, 8, "\\u%04x", c);
        else
            to[n++] = (char)c;
    }
    to[n] = 0;
    return n;
}

/* Into `to`, or only measured. */
static int64_t header_text(char *to, int64_t size)
{
    struct stored s;
    char name[NAME_BYTES], escaped[6 * NAME_BYTES];
    int64_t begin = 0, n = 0;
#define ADD(...) (n += snprintf(to ? to + n : NULL, to ? (size_t)(size - n) : 0, __VA_ARGS__))
    ADD("{\"__metadata__\":{\"format\":\"planc checkpoint\",\"part\":\"%d of %d\",\"step\":\"",
        world.rank, world.size);
    part.step_at = n;
    ADD("%0*d\"}", STEP_DIGITS, 0);
    for (int kind = 0; kind < STATE_KINDS; kind++)
        for (bool more = stored_first(&s); more; more = stored_next(&s)) {
            const struct piece p = state_piece(&s, world.shard, world.replica);
            if (p.count == 0) continue;
            stored_name(&s, name, sizeof name);
            json_name(name, escaped);
            ADD(",\"%s/%s\":{\"dtype\":\"F32\",\"shape\":[%lld],\"data_offsets\":[%lld,%lld]}",
                state_names[kind], escaped, (long long)p.count, (long long)begin,
                (long long)(begin + 4 * p.count));
            begin += 4 * p.count;
        }
    ADD("}");
#undef ADD
    part.elements = begin / 4 / STATE_KINDS;
    return n;
}

bool part_ready(const float *copy)
{
    const int64_t text = header_text(NULL, 0),
                  whole = (8 + text + HEADER_ALIGN - 1) / HEADER_ALIGN * HEADER_ALIGN;
    part.copy = copy;
    part.header = room(whole + 1);
    part.header_bytes = whole;
    for (int i = 0; i < 8; i++) part.header[i] = (char)((uint64_t)(whole - 8) >> 8 * i);
    header_text(part.header + 8, text + 1);
    part.step_at += 8;
    memset(part.header + 8 + text, ' ', (size_t)(whole - 8 - text));
    part.buffer = room(BUFFER_BYTES);
    return true;
}

int64_t part_header_bytes(void) { return part.header_bytes; }
int64_t part_elements(void) { return part.elements; }
int64_t part_progress(void) { return atomic_load(&part.bytes); }
void part_cancel(void) { atomic_store(&part.cancelled, true); }

/* ── writing ─────────────────────────────────────────────────────────────────── */

bool write_exactly(int fd, const void *bytes, int64_t n)
{
    const char *p = bytes;
    while (n > 0) {
        const ssize_t wrote = write(fd, p, (size_t)n);
        if (wrote < 0 && errno == EINTR) continue;
        if (wrote == 0) errno = EIO;
        if (wrote <= 0) return false;
        p += wrote;
        n -= wrote;
    }
    return true;
}

static bool failed(const char *what, char why[WHY_BYTES])
{
    snprintf(why, WHY_BYTES, "checkpoint: %s %.800s: %s", what, part.path, strerror(errno));
    return false;
}

static bool flush_buffer(char why[WHY_BYTES])
{
    if (atomic_load(&part.cancelled)) {
        errno = ECANCELED;
        return failed("write", why);
    }
    XXH3_64bits_update(&part.hash, part.buffer, (size_t)part.used);
    if (!write_exactly(part.fd, part.buffer, part.used)) return failed("write", why);
    part.waiting += part.used;
    atomic_fetch_add(&part.bytes, part.used);
    part.used = 0;
    if (part.waiting < WAITING_BYTES) return true;
    part.waiting = 0;
    return fdatasync(part.fd) == 0 || failed("fdatasync", why);
}

static bool put(const void *bytes, int64_t n, char why[WHY_BYTES])
{
    for (const char *from = bytes; n > 0;) {
        const int64_t some = n < BUFFER_BYTES - part.used ? n : BUFFER_BYTES - part.used;
        memcpy(part.buffer + part.used, from, (size_t)some);
        part.used += some;
        from += some;
        n -= some;
        if (part.used == BUFFER_BYTES && !flush_buffer(why)) return false;
    }
    return true;
}

/* Weights that are not finite are no state to go on from. */
static bool put_floats(const float *from, int64_t n, char why[WHY_BYTES])
{
    uint32_t worst = 0;
    for (int64_t i = 0; i < n; i++) {
        uint32_t bits;
        memcpy(&bits, from + i, 4);
        bits &= 0x7fffffff;
        worst = bits > worst ? bits : worst;
    }
    part.finite = part.finite && worst < 0x7f800000;
    return put(from, 4 * n, why);
}

static int64_t state_at(enum state_kind kind)
{
    switch (kind) {
    case STATE_MASTER: return program.master;
    case STATE_MOMENT1: return program.moment1;
    case STATE_MOMENT2:
    case STATE_KINDS: break;
    }
    return program.moment2;
}

static bool put_piece(struct device *d, void (*between)(void), enum state_kind kind,
                      const struct piece *p, char why[WHY_BYTES])
{
    int64_t from, to;
    state_share(world.replica, &from, &to);
    if (!d) return put_floats(part.copy + kind * (to - from) + p->at - from, p->count, why);
    float *some = device_staging(d);
    const int64_t most = program.staging_bytes / 4;
    for (int64_t done = 0; done < p->count; done += most) {
        const int64_t n = p->count - done < most ? p->count - done : most;
        device_read(d, some, (float *)local(d, state_at(kind)) + p->at + done, 4 * n);
        if (!put_floats(some, n, why)) return false;
        position_moved();
        between();
    }
    return true;
}

static bool put_all(int64_t step, struct device *d, void (*between)(void), char why[WHY_BYTES])
{
    struct stored s;
    char digits[STEP_DIGITS + 2];
    snprintf(digits, sizeof digits, "%0*lld", STEP_DIGITS, (long long)step);
    memcpy(part.header + part.step_at, digits, STEP_DIGITS);
    if (!put(part.header, part.header_bytes, why)) return false;
    for (int kind = 0; kind < STATE_KINDS; kind++)
        for (bool more = stored_first(&s); more; more = stored_next(&s)) {
            const struct piece p = state_piece(&s, world.shard, world.replica);
            if (p.count > 0 && !put_piece(d, between, (enum state_kind)kind, &p, why)) return false;
        }
    if (!part.finite) {
        snprintf(why, WHY_BYTES,
                 "checkpoint: rank %d: weights or moments of step %lld are not finite: not saved",
                 world.rank, (long long)step);
        return false;
    }
    return flush_buffer(why) && (fsync(part.fd) == 0 || failed("fsync", why));
}

bool part_write(const char *folder, int64_t step, struct device *d, void (*between)(void),
                struct part_written *written, char why[WHY_BYTES])
{
    char name[CHECKPOINT_NAME];
    part_name(world.rank, name);
    snprintf(part.path, sizeof part.path, "%s/%s", folder, name);
    atomic_store(&part.bytes, 0);
    part.used = part.waiting = 0;
    part.finite = true;
    XXH3_64bits_reset(&part.hash);
    part.fd = open(part.path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (part.fd < 0) return failed("open", why);
    bool fine = put_all(step, d, between, why);
    /* a disk that is not this host's may refuse only here */
    if (close(part.fd) != 0 && fine) fine = failed("close", why);
    part.fd = -1;
    *written = (struct part_written){XXH3_64bits_digest(&part.hash), atomic_load(&part.bytes)};
    return fine;
}

bool part_hash(const char *path, int64_t bytes, uint64_t *hash, char why[WHY_BYTES])
{
    static _Alignas(64) unsigned char some[BUFFER_BYTES];
    static XXH3_state_t state;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    XXH3_64bits_reset(&state);
    bool fine = fd >= 0;
    int64_t at = 0;
    while (fine && at < bytes) {
        const int64_t want = bytes - at < BUFFER_BYTES ? bytes - at : BUFFER_BYTES;
        const ssize_t n = pread(fd, some, (size_t)want, (off_t)at);
        if (n < 0 && errno == EINTR) continue;
        if (n == 0) errno = EIO;
        fine = n > 0;
        if (fine) XXH3_64bits_update(&state, some, (size_t)n);
        at += n;
        position_moved();
    }
    if (!fine) snprintf(why, WHY_BYTES, "%s: %s", path, strerror(errno));
    if (fd >= 0) close(fd);
    *hash = XXH3_64bits_digest(&state);
    return fine;
}
