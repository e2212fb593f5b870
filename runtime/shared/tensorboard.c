/* Event files of TensorBoard, written by hand: a file is a sequence of TFRecords, a record is one
 * Event of tensorflow/core/util/event.proto. Only the fields that are needed are encoded.
 *
 * A record: its length (8 bytes), the masked CRC-32C of the length (4), the Event, its masked
 * CRC-32C (4), all little-endian. The mask rotates the sum by 15 bits and adds a constant, because
 * the sum of data that holds its own sum is weak.
 *
 * Every process writes a file of its own, whose first events are the version of the format and the
 * start of a session at the step that the run begins with. TensorBoard drops what it knows of that
 * step and later ones. A resumed run also cuts these events from the files of the processes before
 * it, so the files hold each step once. Files that something else wrote are not touched. */
#define _GNU_SOURCE
#include "tensorboard.h"
#include "output.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define OPTION "--tensorboard"
#define PREFIX "events.out.tfevents."
#define SUFFIX ".planc"
#define PER_ELEMENT "_by_expert"
enum { PATH_BYTES = 4096, LENGTH_BYTES = 8, SUM_BYTES = 4, BUCKETS = 30 };
enum { HEAD = LENGTH_BYTES + SUM_BYTES };
/* wire types of protobuf: a field's key is its number and one of these */
enum { WIRE_VARINT = 0, WIRE_64 = 1, WIRE_BYTES = 2, WIRE_32 = 5 };
/* fields of Event, SessionLog, Summary, Summary.Value and HistogramProto */
enum { EVENT_TIME = 1, EVENT_STEP = 2, EVENT_VERSION = 3, EVENT_SUMMARY = 5, EVENT_SESSION = 7 };
enum { SESSION_STATUS = 1, SESSION_START = 1 };
enum { SUMMARY_VALUE = 1, VALUE_TAG = 1, VALUE_SIMPLE = 2, VALUE_HISTOGRAM = 5 };
enum { HISTO_MIN = 1, HISTO_MAX, HISTO_NUM, HISTO_SUM, HISTO_SQUARES, HISTO_LIMIT, HISTO_BUCKET };

static struct {
    int fd;
    const char *folder;
    int64_t step;
    int64_t lost_from; /* the first step that is not in the file; why: errno, 0: none is missing */
    int lost_why;
    unsigned char *summary, *event; /* what is encoded; the event lies behind room for its HEAD */
    int64_t size, used;
} out = {.fd = -1};

/* ── records ─────────────────────────────────────────────────────────────────── */

static uint32_t crc_table[256];

static void crc_prepare(void)
{
    for (uint32_t i = 0; i < 256; i++) {
        uint32_t c = i;
        for (int bit = 0; bit < 8; bit++) c = c & 1 ? c >> 1 ^ 0x82f63b78u : c >> 1;
        crc_table[i] = c;
    }
}

/* CRC-32C of more bytes; begins with 0. */
static uint32_t crc_add(uint32_t crc, const unsigned char *p, int64_t n)
{
    crc = ~crc;
    for (int64_t i = 0; i < n; i++) crc = crc_table[(crc ^ p[i]) & 0xff] ^ crc >> 8;
    return ~crc;
}

static uint32_t masked(uint32_t crc) { return (crc >> 15 | crc << 17) + 0xa282ead8u; }

static void put_little(unsigned char *to, uint64_t x, int bytes)
{
    for (int i = 0; i < bytes; i++) to[i] = (unsigned char)(x >> 8 * i);
}

static uint64_t get_little(const unsigned char *from, int bytes)
{
    uint64_t x = 0;
    for (int i = bytes; i-- > 0;) x = x << 8 | from[i];
    return x;
}

/* Writes the `n` bytes of an event that lie at out.event + HEAD. A record that cannot be written
 * whole is taken back. False: errno says why. */
static bool write_record(int64_t n)
{
    unsigned char *r = out.event;
    const int64_t all = HEAD + n + SUM_BYTES;
    int64_t done = 0;
    put_little(r, (uint64_t)n, LENGTH_BYTES);
    put_little(r + LENGTH_BYTES, masked(crc_add(0, r, LENGTH_BYTES)), SUM_BYTES);
    put_little(r + HEAD + n, masked(crc_add(0, r + HEAD, n)), SUM_BYTES);
    while (done < all) {
        const ssize_t wrote = write(out.fd, r + done, (size_t)(all - done));
        if (wrote < 0 && errno == EINTR) continue;
        if (wrote <= 0) {
            const int why = wrote < 0 ? errno : EIO;
            struct stat s;
            const bool taken_back =
                fstat(out.fd, &s) == 0 && ftruncate(out.fd, s.st_size - (off_t)done) == 0;
            errno = why;
            /* a reader finds half a record at the end, and stops there */
            return (void)taken_back, false;
        }
        done += wrote;
    }
    return true;
}

/* ── protobuf ────────────────────────────────────────────────────────────────── */

/* Appends to `buffer` of out.size bytes, which tensorboard_open made large enough. */
struct message {
    unsigned char *at;
    int64_t n;
};

static void put_varint(struct message *m, uint64_t x)
{
    for (; x >= 0x80; x >>= 7) m->at[m->n++] = (unsigned char)(x | 0x80);
    m->at[m->n++] = (unsigned char)x;
}

static void put_key(struct message *m, int field, int wire)
{
    put_varint(m, (uint64_t)field << 3 | (uint64_t)wire);
}

static void put_raw_double(struct message *m, double x)
{
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    put_little(m->at + m->n, bits, 8);
    m->n += 8;
}

static void put_double(struct message *m, int field, double x)
{
    put_key(m, field, WIRE_64);
    put_raw_double(m, x);
}

static void put_float(struct message *m, int field, float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    put_key(m, field, WIRE_32);
    put_little(m->at + m->n, bits, 4);
    m->n += 4;
}

static void put_bytes(struct message *m, int field, const void *from, int64_t n)
{
    put_key(m, field, WIRE_BYTES);
    put_varint(m, (uint64_t)n);
    memcpy(m->at + m->n, from, (size_t)n);
    m->n += n;
}

static int64_t varint_bytes(uint64_t x)
{
    int64_t n = 1;
    for (; x >= 0x80; x >>= 7) n++;
    return n;
}

static int64_t bytes_of(int64_t n) { return 1 + varint_bytes((uint64_t)n) + n; }

static struct message event_begin(int64_t step)
{
    struct timespec now = {0};
    struct message m = {out.event + HEAD, 0};
    clock_gettime(CLOCK_REALTIME, &now);
    put_double(&m, EVENT_TIME, (double)now.tv_sec + 1e-9 * (double)now.tv_nsec);
    put_key(&m, EVENT_STEP, WIRE_VARINT);
    put_varint(&m, (uint64_t)step);
    return m;
}

/* ── what an earlier process wrote ───────────────────────────────────────────── */

/* The step of an event that we wrote, by its first bytes: a time, then a step. -1: it is none. */
static int64_t event_step(const unsigned char *p, int64_t n)
{
    const int64_t at = 1 + 8 + 1;
    uint64_t step = 0;
    if (n <= at || p[0] != (EVENT_TIME << 3 | WIRE_64) || p[9] != (EVENT_STEP << 3 | WIRE_VARINT))
        return -1;
    for (int64_t i = 0; i < 9 && at + i < n; i++) {
        step |= (uint64_t)(p[at + i] & 0x7f) << 7 * i;
        if (!(p[at + i] & 0x80)) return (int64_t)step;
    }
    return -1;
}

static bool read_all(int fd, unsigned char *to, int64_t n, int64_t from)
{
    for (int64_t done = 0; done < n;) {
        const ssize_t got = pread(fd, to + done, (size_t)(n - done), (off_t)(from + done));
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0) return false;
        done += got;
    }
    return true;
}

/* Where the record at `at` ends, and its step; -1: there is no whole record. */
static int64_t record_end(int fd, int64_t at, int64_t size, int64_t *step)
{
    unsigned char head[HEAD], some[1 << 14];
    if (size - at < HEAD + SUM_BYTES || !read_all(fd, head, HEAD, at)) return -1;
    const uint64_t n = get_little(head, LENGTH_BYTES);
    uint32_t crc = 0;
    if (masked(crc_add(0, head, LENGTH_BYTES)) != get_little(head + LENGTH_BYTES, SUM_BYTES) ||
        n > (uint64_t)(size - at - HEAD - SUM_BYTES))
        return -1;
    *step = -1;
    for (int64_t done = 0; done < (int64_t)n;) {
        int64_t part = (int64_t)n - done;
        if (part > (int64_t)sizeof some) part = (int64_t)sizeof some;
        if (!read_all(fd, some, part, at + HEAD + done)) return -1;
        if (done == 0) *step = event_step(some, part);
        crc = crc_add(crc, some, part);
        done += part;
    }
    at += HEAD + (int64_t)n;
    if (!read_all(fd, head, SUM_BYTES, at) || masked(crc) != get_little(head, SUM_BYTES)) return -1;
    return at + SUM_BYTES;
}

/* Cuts a file behind its last event before step `first`: events are in the order of steps. */
static bool cut_file(const char *path, int64_t first)
{
    struct stat s;
    const int fd = open(path, O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &s) != 0) {
        fail_note(OPTION ": %s: %s", path, output_why(errno));
        if (fd >= 0) close(fd);
        return false;
    }
    bool fine = true;
    int64_t keep = 0, step;
    if (!S_ISREG(s.st_mode) || s.st_size == 0) {
        close(fd);
        return true;
    }
    for (int64_t end; (end = record_end(fd, keep, s.st_size, &step)) > 0; keep = end)
        if (step < 0 || (keep > 0 && step >= first)) break;
    if (keep == 0)
        say("warning: " OPTION ": %s holds no events; it is left as it is", path);
    else if (flock(fd, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK)
        fine = fail_note(OPTION ": %s: another trainer writes it", path);
    else if (keep < s.st_size && ftruncate(fd, (off_t)keep) != 0)
        fine = fail_note(OPTION ": %s: %s", path, output_why(errno));
    close(fd);
    return fine;
}

static bool ends_with(const char *text, const char *end)
{
    const size_t n = strlen(text), k = strlen(end);
    return n >= k && !strcmp(text + n - k, end);
}

/* Cuts what must be cut, and finds the time in the newest name: TensorBoard reads files in the
 * order of their names. */
static bool look_around(const char *folder, int64_t first, int64_t *newest)
{
    char path[PATH_BYTES];
    bool fine = true;
    DIR *d = opendir(folder);
    if (!d) return fail_note(OPTION " %s: %s", folder, strerror(errno));
    for (struct dirent *e; fine && (e = readdir(d)) != NULL;) {
        if (strncmp(e->d_name, PREFIX, strlen(PREFIX))) continue;
        const int64_t time = strtoll(e->d_name + strlen(PREFIX), NULL, 10);
        if (time > *newest && time < (int64_t)1 << 40) *newest = time;
        if (first == 0 || !ends_with(e->d_name, SUFFIX)) continue;
        fine = snprintf(path, sizeof path, "%s/%s", folder, e->d_name) < PATH_BYTES
                   ? cut_file(path, first)
                   : fail_note(OPTION " %s: %s", folder, strerror(ENAMETOOLONG));
    }
    closedir(d);
    return fine;
}

/* ── the file of this process ────────────────────────────────────────────────── */

static bool make_folders(const char *path)
{
    char part[PATH_BYTES];
    const size_t n = strlen(path);
    if (n >= PATH_BYTES) return fail_note(OPTION " %s: %s", path, strerror(ENAMETOOLONG));
    for (size_t i = 1; i <= n; i++) {
        if (path[i] != '/' && path[i] != 0) continue;
        memcpy(part, path, i);
        part[i] = 0;
        const int error = mkdir(part, 0777) == 0 ? 0 : errno;
        if (error && error != EEXIST && access(part, F_OK) != 0)
            return fail_note(OPTION " %s: make %s: %s", path, part, strerror(error));
    }
    return true;
}

static bool create(const char *folder, int64_t newest)
{
    char path[PATH_BYTES], host[256] = "host";
    int64_t now = (int64_t)time(NULL);
    gethostname(host, sizeof host - 1);
    for (char *c = host; *c; c++)
        if (*c == '/') *c = '-';
    if (now <= newest) now = newest + 1;
    for (int i = 0; i < 100 && out.fd < 0; i++) {
        const int n = snprintf(path, sizeof path, "%s/" PREFIX "%010" PRId64 ".%s.%ld" SUFFIX,
                               folder, now + i, host, (long)getpid());
        if (n < 0 || n >= PATH_BYTES) {
            errno = ENAMETOOLONG;
            break;
        }
        out.fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_APPEND | O_NOFOLLOW | O_CLOEXEC, 0666);
        if (out.fd < 0 && errno != EEXIST) break;
    }
    if (out.fd < 0) return fail_note(OPTION " %s: %s", folder, output_why(errno));
    (void)flock(out.fd, LOCK_EX | LOCK_NB); /* for cut_file; some disks have no locks */
    return true;
}

/* The file's version, and the start of a session at step `first`. */
static bool write_start(int64_t first)
{
    static const char version[] = "brain.Event:2";
    struct message m = event_begin(0);
    put_bytes(&m, EVENT_VERSION, version, (int64_t)strlen(version));
    if (!write_record(m.n)) return false;
    m = event_begin(first);
    put_bytes(&m, EVENT_SESSION,
              (const unsigned char[]){SESSION_STATUS << 3 | WIRE_VARINT, SESSION_START}, 2);
    return write_record(m.n);
}

bool tensorboard_open(const char *folder, int64_t first, int64_t tag_bytes, int64_t elements)
{
    int64_t newest = 0;
    crc_prepare();
    out.folder = folder;
    /* a list is written twice: n buckets, and BUCKETS of them; a bucket is two doubles */
    out.size = (1 << 14) + 3 * tag_bytes + elements * (16 + 16 * BUCKETS);
    out.summary = room(out.size);
    out.event = room(out.size + (1 << 10));
    if (!make_folders(folder) || !look_around(folder, first, &newest) || !create(folder, newest))
        return false;
    return write_start(first) || fail_note(OPTION " %s: %s", folder, output_why(errno));
}

/* ── a step ──────────────────────────────────────────────────────────────────── */

void tensorboard_begin(int64_t step)
{
    out.step = step;
    out.used = 0;
}

/* The beginning of a Summary.Value: its tag, and `rest` bytes that the caller appends. */
static struct message value_begin(const char *tag, const char *more, int64_t rest)
{
    const int64_t n = (int64_t)strlen(tag), k = (int64_t)strlen(more);
    struct message m = {out.summary, out.used};
    if (out.used + n + k + rest + 64 > out.size)
        fail_now("a step's event is longer than %lld bytes", (long long)out.size);
    put_key(&m, SUMMARY_VALUE, WIRE_BYTES);
    put_varint(&m, (uint64_t)(bytes_of(n + k) + rest));
    put_key(&m, VALUE_TAG, WIRE_BYTES);
    put_varint(&m, (uint64_t)(n + k));
    memcpy(m.at + m.n, tag, (size_t)n);
    memcpy(m.at + m.n + n, more, (size_t)k);
    m.n += n + k;
    return m;
}

void tensorboard_number(const char *tag, double value)
{
    if (out.fd < 0) return;
    struct message m = value_begin(tag, "", 5);
    put_float(&m, VALUE_SIMPLE, (float)value);
    out.used = m.n;
}

/* `n` buckets; bucket i ends at limit(first + i x width) and counts count[i]. */
static void put_histogram(const char *tag, const char *more, const double range[2],
                          const double total[3], int64_t n, double width, const double *count)
{
    const int64_t list = bytes_of(8 * n), histogram = 5 * 9 + 2 * list;
    struct message m = value_begin(tag, more, bytes_of(histogram));
    put_key(&m, VALUE_HISTOGRAM, WIRE_BYTES);
    put_varint(&m, (uint64_t)histogram);
    put_double(&m, HISTO_MIN, range[0]);
    put_double(&m, HISTO_MAX, range[1]);
    put_double(&m, HISTO_NUM, total[0]);
    put_double(&m, HISTO_SUM, total[1]);
    put_double(&m, HISTO_SQUARES, total[2]);
    put_key(&m, HISTO_LIMIT, WIRE_BYTES);
    put_varint(&m, (uint64_t)(8 * n));
    for (int64_t i = 0; i < n; i++)
        put_raw_double(&m, i + 1 == n ? range[1] : range[0] + width * (double)(i + 1));
    put_key(&m, HISTO_BUCKET, WIRE_BYTES);
    put_varint(&m, (uint64_t)(8 * n));
    for (int64_t i = 0; i < n; i++) put_raw_double(&m, count[i]);
    out.used = m.n;
}

void tensorboard_list(const char *tag, const double *value, int64_t n)
{
    double range[2] = {value[0], value[0]}, total[3] = {(double)n, 0, 0}, count[BUCKETS] = {0};
    double by_index[3] = {0};
    if (out.fd < 0) return;
    for (int64_t i = 0; i < n; i++) {
        const double middle = (double)i + 0.5;
        if (!isfinite(value[i])) return;
        range[0] = fmin(range[0], value[i]);
        range[1] = fmax(range[1], value[i]);
        total[1] += value[i];
        total[2] += value[i] * value[i];
        by_index[0] += value[i];
        by_index[1] += value[i] * middle;
        by_index[2] += value[i] * middle * middle;
    }
    const double width = (range[1] - range[0]) / BUCKETS;
    for (int64_t i = 0; i < n; i++) {
        const int64_t k = width > 0 ? (int64_t)ceil((value[i] - range[0]) / width) - 1 : 0;
        count[k < 0 ? 0 : k < BUCKETS ? k : BUCKETS - 1]++;
    }
    put_histogram(tag, "", range, total, width > 0 ? BUCKETS : 1, width, count);
    put_histogram(tag, PER_ELEMENT, (double[]){0, (double)n}, by_index, n, 1, value);
}

void tensorboard_end(void)
{
    if (out.fd < 0) return;
    struct message m = event_begin(out.step);
    put_bytes(&m, EVENT_SUMMARY, out.summary, out.used);
    if (write_record(m.n)) return;
    out.lost_from = out.step;
    out.lost_why = errno;
    say("warning: " OPTION " %s: %s; nothing is written from step %lld on", out.folder,
        output_why(out.lost_why), (long long)out.step);
    close(out.fd);
    out.fd = -1;
}

bool tensorboard_whole(void)
{
    return !out.lost_why ||
           fail_note(OPTION " %s: %s: nothing of step %lld and later is in it", out.folder,
                     output_why(out.lost_why), (long long)out.lost_from);
}
